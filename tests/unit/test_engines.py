from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import EngineArguments, read_engine_arguments
from kneekeeper.domain.engines import (
    floor_of_tokens,
    limit_conflict,
    valid_sequence_grid,
    valid_token_grid,
)


def arguments(*words: str) -> EngineArguments:
    result = read_engine_arguments(["vllm", "serve", "M"], list(words), {})
    assert isinstance(result, EngineArguments), result
    return result


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
