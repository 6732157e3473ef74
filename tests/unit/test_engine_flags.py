"""vLLM's command line as the simulated engine reads it; each fact was tested on a real vLLM 0.32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.engine.arguments import ArgumentsError, human_readable_int, parse_arguments
from kneekeeper.engine.configuration import configure
from kneekeeper.engine.hardware import Hardware, HardwareError, read_hardware
from kneekeeper.engine.start_error import EngineStartError, FailedIn, check_port_variable


def parse(text: str):
    return parse_arguments(text.split())


@pytest.mark.parametrize(
    "text",
    ["serve m --max-num-seqs 8", "serve m --max_num_seqs 8", "serve m --max-num-seqs=8", "serve m --max-num-seq 8"],
)
def test_a_flag_may_be_written_in_each_of_vllms_ways(text: str) -> None:
    assert parse(text).max_num_seqs == 8


@pytest.mark.parametrize(
    "text", ["serve m --port 1", "--model m --port 1", "serve --model m --port 1", "serve --port 1 m"]
)
def test_the_model_is_positional_or_a_flag(text: str) -> None:
    assert (parse(text).model, parse(text).port) == ("m", 1)


def test_the_last_of_several_values_wins() -> None:
    assert parse("serve m --max-num-seqs 8 --max_num_seqs=16").max_num_seqs == 16


@pytest.mark.parametrize(
    ("text", "value"), [("8k", 8000), ("8K", 8192), ("8_192", 8192), ("25.6k", 25600), ("1M", 2**20), ("2g", 2 * 10**9)]
)
def test_token_counts_may_be_written_for_people(text: str, value: int) -> None:
    assert parse(f"serve m --max-num-batched-tokens {text}").max_num_batched_tokens == value


@given(st.integers(0, 10**15))
@settings(deadline=None)
def test_a_plain_number_is_itself(value: int) -> None:
    assert human_readable_int(str(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "serve m --max-num-seqs 1K",
        "serve m --max-num-seqs=",
        "serve m --max-num-s 8",
        "serve m --max-num-batched-tokens 1.5K",
        "serve m --max-num-batched-tokens many",
        "serve m --no-such-flag",
        "serve m --swap-space 4",
        "serve m --disable-log-requests",
        "serve m --cuda-graph-sizes 8",
        "serve m --enable-chunked-prefill=False",
        "serve m --dtype int3",
        "serve m n",
        "serve m --custom-histogram-buckets [1]",
    ],
)
def test_what_argparse_refuses_ends_the_process_with_code_2(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(text)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_zero_passes_argparse_and_fails_later() -> None:
    with pytest.raises(EngineStartError, match="max_num_seqs must be at least 1"):
        configure(parse("serve m --max-num-seqs 0"), Hardware())


def test_switches_have_a_negative_form() -> None:
    assert parse("serve m").enable_chunked_prefill
    assert parse("serve m").enable_prefix_caching
    assert not parse("serve m --no-enable-chunked-prefill").enable_chunked_prefill
    assert not parse("serve m --no_enable_prefix_caching").enable_prefix_caching
    assert parse("serve m --no-enable-prefix-caching --enable-prefix-caching").enable_prefix_caching


def test_real_flags_without_effect_are_accepted_in_their_real_shapes() -> None:
    arguments = parse_arguments(
        [
            "serve",
            "m",
            "--async-scheduling",
            "--no-enable-log-requests",
            "--trust-remote-code",
            "-O3",
            "--speculative-config",
            '{"method": "ngram"}',
            "--compilation-config.max_cudagraph_capture_size",
            "256",
            "--compilation-config.pass_config.fuse=true",
            "--lora-modules",
            "a=b",
            "c=d",
            "--stream-interval",
            "2",
            "--dtype",
            "float32",
            "--load-format",
            "dummy",
        ]
    )
    assert json.loads(arguments.non_default["compilation_config"]) == {
        "max_cudagraph_capture_size": 256,
        "pass_config": {"fuse": True},
    }
    assert arguments.non_default["optimization_level"] == "3"


def test_a_config_file_gives_defaults_that_the_command_line_overrides(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "model: from-file\nmax_num_seqs: 8\nport: 9\nenable-prefix-caching: false\nserved-model-name: [a, b]\n"
        "compilation-config: {level: 3}\n"
    )
    arguments = parse_arguments(["serve", "--max-num-seqs", "16", "--config", str(file)])
    assert (arguments.model, arguments.max_num_seqs, arguments.port) == ("from-file", 16, 9)
    assert arguments.served_model_names == ("a", "b")
    assert not arguments.enable_prefix_caching
    assert parse_arguments(["serve", "mine", "--config", str(file)]).model == "mine"


def test_a_config_file_in_one_token_is_silently_ignored(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("max-num-seqs: 8\n")
    assert parse_arguments(["serve", "m", f"--config={file}"]).max_num_seqs is None


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", "{}", "yaml/yml"),
        ("missing.yaml", None, "Unable to read"),
        ("config.yaml", "[1, 2]", "keys and values"),
        ("config.yaml", "a: [", "Unable to read"),
        ("config.yaml", "port: 1", "No model specified"),
    ],
)
def test_an_unusable_config_file_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ArgumentsError, match=reason):
        parse_arguments(["serve", "--config", str(tmp_path / name)])


def test_a_config_flag_without_file_is_refused() -> None:
    with pytest.raises(ArgumentsError, match="No config file"):
        parse("serve m --config")


def test_secrets_and_names_are_lists() -> None:
    arguments = parse("serve m --api-key a b --served-model-name x y")
    assert arguments.api_keys == ("a", "b")
    assert arguments.served_model_names == ("x", "y")


@pytest.mark.parametrize(
    ("flags", "seqs", "tokens"),
    [
        ("", 256, 2048),
        ("--max-num-seqs 8", 8, 2048),
        ("--max-num-batched-tokens 128", 128, 128),
        ("--no-enable-chunked-prefill", 256, 8192),
        ("--max-num-seqs 2 --max-model-len 512", 2, 1024),
    ],
)
def test_defaults_are_those_of_the_api_server_on_a_small_gpu(flags: str, seqs: int, tokens: int) -> None:
    configuration = configure(parse(f"serve m {flags}"), Hardware())
    assert (configuration.max_num_seqs, configuration.max_num_batched_tokens) == (seqs, tokens)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--max-num-batched-tokens 1024 --max-model-len 2048 --no-enable-chunked-prefill",
            "max_num_batched_tokens (1024) is smaller than max_model_len (2048). This effectively limits",
        ),
        (
            "--max-num-batched-tokens 128 --max-num-seqs 256",
            "max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256).",
        ),
        (
            "--max-num-seqs 8 --max-num-active-seqs 9",
            "max_num_active_seqs (9) cannot be greater than max_num_seqs (8).",
        ),
        (
            "--long-prefill-token-threshold 9000",
            "long_prefill_token_threshold (9000) cannot be greater than the max_model_len (8192).",
        ),
        (
            "--max-model-len 9000",
            "User-specified max_model_len (9000) is greater than the derived max_model_len",
        ),
        ("--gpu-memory-utilization 1.5", "gpu_memory_utilization"),
        ('--custom-histogram-buckets {"ttft":[1]}', "unknown family 'ttft'"),
        ('--custom-histogram-buckets {"request_latency":[2,1]}', "strictly increasing"),
        ('--custom-histogram-buckets {"request_latency":[]}', "strictly increasing"),
    ],
)
def test_rules_between_flags_fail_in_vllms_words(flags: str, message: str) -> None:
    with pytest.raises(EngineStartError) as failure:
        configure(parse(f"serve m {flags}"), Hardware())
    assert message in str(failure.value)
    assert failure.value.failed_in is FailedIn.API_SERVER
    assert "ValidationError: 1 validation error for " in failure.value.traceback("11-29 16:00:00")


def test_a_useless_token_budget_is_warned_of() -> None:
    configuration = configure(parse("serve m --max-num-seqs 1 --max-num-batched-tokens 16k"), Hardware())
    assert configuration.warnings == (
        "max_num_batched_tokens (16000) exceeds max_num_seqs * max_model_len (8192). "
        "This may lead to unexpected behavior.",
    )


@pytest.mark.parametrize(
    ("flags", "sizes", "largest"), [("--max-num-seqs 8", 5, 16), ("", 51, 512), ("--enforce-eager", 0, None)]
)
def test_cuda_graphs_are_captured_on_vllms_grid(flags: str, sizes: int, largest: int | None) -> None:
    captured = configure(parse(f"serve m {flags}"), Hardware()).graph_sizes
    assert len(captured) == sizes
    assert (captured[-1] if captured else None) == largest


def test_a_port_variable_of_a_service_ends_the_start() -> None:
    check_port_variable(None)
    check_port_variable("29500")
    with pytest.raises(EngineStartError, match="appears to be a URI"):
        check_port_variable("tcp://10.96.12.34:80")


def test_hardware_comes_from_json_and_names_the_bad_field() -> None:
    assert read_hardware(None) == read_hardware("") == read_hardware("{}") == Hardware()
    assert read_hardware('{"step_time": {"base_ms": 3}}').step_time.base_ms == 3
    with pytest.raises(HardwareError, match=r"step_time\.bse_ms"):
        read_hardware('{"step_time": {"bse_ms": 3}}')
    with pytest.raises(HardwareError, match="the whole"):
        read_hardware("{")


_FRAGMENTS = """
serve m --model --max-num-seqs --max_num_seqs=4 --max-num-batched-tokens=8k -O3 -O -tp --lora-modules --config
--compilation-config.a.b=1 --compilation-config.a.b --compilation-config.a=1 -- 1 -1 = -
"""
_words = st.text(max_size=6) | st.sampled_from(_FRAGMENTS.split())


@given(st.lists(_words, max_size=8))
@settings(deadline=None)
def test_any_command_line_parses_or_is_refused_in_a_way_that_ends_a_start(words: list[str]) -> None:
    refusal = ""
    try:
        parse_arguments(words)
    except ArgumentsError as error:
        refusal = str(error)
    except SystemExit as stop:
        refusal = f"code {stop.code}"
    assert refusal in ("", "code 2", "code 0") or " " in refusal


def test_a_later_dotted_key_replaces_what_it_cannot_extend() -> None:
    arguments = parse("serve m --compilation-config.a=1 --compilation-config.a.b=2")
    assert json.loads(arguments.non_default["compilation_config"]) == {"a": {"b": 2}}
