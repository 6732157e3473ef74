from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import EngineArguments, read_engine_arguments
from kneekeeper.domain.engines import (
    Device,
    EngineVersion,
    Hardware,
    InvalidEngineVersionError,
    MetricFamily,
    default_setting,
    floor_of_tokens,
    limit_conflict,
    normalise_metric_name,
    valid_sequence_grid,
    valid_token_grid,
)

GOLDEN_METRICS = Path(__file__).parents[1] / "contract" / "golden" / "vllm-0.32-metrics.txt"


def arguments(*words: str) -> EngineArguments:
    result = read_engine_arguments(["vllm", "serve", "M"], list(words), {})
    assert isinstance(result, EngineArguments), result
    return result


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.32.0", EngineVersion(0, 32, 0)),
        ("v0.20.1", EngineVersion(0, 20, 1)),
        ("0.33.0rc1.dev12+gabc", EngineVersion(0, 33, 0)),
        ("v0.9.0.1", EngineVersion(0, 9, 0)),
        ("0.10", EngineVersion(0, 10, 0)),
        ("v0.11.0-x86_64", EngineVersion(0, 11, 0)),
    ],
)
def test_versions_are_read_from_the_server_and_from_image_tags(text, version):
    assert EngineVersion.parse(text) == version


@pytest.mark.parametrize("text", ["", "latest", "v1", "nightly-0.32.0", "0.x.1"])
def test_a_tag_that_is_no_version_is_an_error_with_an_example(text):
    with pytest.raises(InvalidEngineVersionError, match=r"0\.32\.0"):
        EngineVersion.parse(text)


def test_versions_are_ordered_by_number_not_by_text():
    assert EngineVersion.parse("0.9.2") < EngineVersion.parse("0.10.0")


H100 = Hardware(Device.CUDA, 79.2, "NVIDIA-H100-80GB-HBM3")
A100 = Hardware(Device.CUDA, 79.2, "NVIDIA-A100-SXM4-80GB")
L4 = Hardware(Device.CUDA, 22.5, "NVIDIA-L4")
B200 = Hardware(Device.CUDA, 178.0, "NVIDIA-B200")
CPU = Hardware(Device.CPU)


@pytest.mark.parametrize(
    ("version", "hardware", "world_size", "seqs", "tokens"),
    [
        ("0.8.5", A100, 1, 1024, 8192),
        ("0.9.2", A100, 1, 256, 2048),
        ("0.32.0", H100, 1, 1024, 8192),
        ("0.32.0", L4, 1, 256, 2048),
        ("0.26.0", B200, 1, 1024, 8192),
        ("0.28.0", B200, 1, 1024, 16384),
        ("0.32.0", CPU, 1, 128, 2048),
        ("0.32.0", CPU, 4, 512, 8192),
    ],
)
def test_defaults_by_version_and_hardware(version, hardware, world_size, seqs, tokens):
    setting = default_setting(EngineVersion.parse(version), hardware, world_size)
    assert setting == Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens)


@pytest.mark.parametrize(
    ("version", "hardware"),
    [
        ("0.7.3", H100),
        ("0.32.0", Hardware(Device.CUDA)),
        ("0.8.5", CPU),
        ("0.20.0", CPU),
        ("0.9.0", A100),
        ("0.27.0", B200),
    ],
)
def test_a_default_that_was_not_read_in_a_release_is_unknown(version, hardware):
    assert default_setting(EngineVersion.parse(version), hardware) is None


def test_the_sequence_grid_is_vllms_list_of_graph_sizes():
    grid = valid_sequence_grid(304)
    assert grid[:6] == [1, 2, 4, 8, 16, 24]
    assert grid[-5:] == [248, 256, 272, 288, 304]
    assert valid_sequence_grid(0) == []


@given(st.integers(0, 6000))
def test_grids_ascend_and_end_at_their_bound(highest):
    for grid in (valid_sequence_grid(highest), valid_token_grid(highest)):
        assert grid == sorted(set(grid))
        assert all(1 <= value <= highest for value in grid)


def test_the_token_grid_has_powers_of_two_and_one_and_a_half_times_these():
    assert valid_token_grid(1024) == [64, 96, 128, 192, 256, 384, 512, 768, 1024]


@pytest.mark.parametrize(
    ("words", "floor"),
    [
        ([], 64),
        (["--no-enable-chunked-prefill", "--max-model-len=4096"], 4096),
        (["--no-enable-chunked-prefill", "--max-num-batched-tokens=9000"], 9000),
        (["--no-enable-chunked-prefill"], None),
        (["--disable-chunked-mm-input", "--max-num-batched-tokens=9000"], 9000),
        (["--disable-chunked-mm-input"], None),
        (["--spec-method=eagle", "--spec-tokens=3"], 256),
        (["--spec-method=eagle"], None),
    ],
)
def test_the_token_floor_is_the_strictest_rule_or_unknown(words, floor):
    assert floor_of_tokens(arguments(*words), max_num_seqs=64).tokens == floor


@given(st.integers(1, 300), st.integers(1, 4000))
def test_a_plain_engine_accepts_exactly_what_vllm_accepts(seqs, tokens):
    conflict = limit_conflict(arguments(), Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens))
    assert (conflict is None) == (tokens >= seqs)


@given(st.integers(1, 100), st.integers(1, 5000), st.integers(0, 2))
def test_a_budget_at_the_floor_is_accepted_and_one_below_is_not(seqs, length, below):
    engine = arguments("--no-enable-chunked-prefill", f"--max-model-len={length}")
    floor = floor_of_tokens(engine, seqs).tokens
    assert floor is not None
    tokens = max(1, floor - below)
    conflict = limit_conflict(engine, Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens))
    assert (conflict is None) == (tokens == floor)


def test_active_sequences_above_the_limit_are_a_conflict_with_a_next_step():
    setting = Setting(max_num_seqs=8, max_num_batched_tokens=512)
    conflict = limit_conflict(arguments("--max-num-active-seqs=16"), setting)
    assert conflict is not None
    assert "--max-num-active-seqs to 8" in conflict


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_", "ray_vllm:", "kserve_vllm:"])
def test_every_known_prefix_of_a_metric_becomes_vllms_own(prefix):
    assert normalise_metric_name(f"{prefix}prompt_tokens_total") == "vllm:prompt_tokens_total"


@pytest.mark.parametrize("name", ["process_start_time_seconds", "my_vllm_thing", "http_requests_total"])
def test_other_metrics_keep_their_names(name):
    assert normalise_metric_name(name) == name


@pytest.mark.parametrize("family", MetricFamily)
def test_a_real_vllm_exposes_every_family_that_is_read(family):
    exposed = {line.split("{")[0].split(" ")[0] for line in GOLDEN_METRICS.read_text().splitlines()}
    assert family in exposed or f"{family}_bucket" in exposed
