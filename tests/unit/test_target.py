"""Which container is tuned, and inside which bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.serving_profile import Bounds, Parameters, TargetRef
from kneekeeper.domain.arguments import EngineArguments, read_engine_arguments
from kneekeeper.domain.observation import ContainerView
from kneekeeper.domain.target import (
    MOST_SEQUENCES,
    MOST_TOKENS,
    Target,
    TargetProblem,
    bounds_of,
    bounds_problem,
    present_setting,
    resolve,
    words_with,
)
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template

PRESENT = Setting(max_num_seqs=256, max_num_batched_tokens=2048)


def arguments(*flags: str) -> EngineArguments:
    read = read_engine_arguments(["vllm"], ["serve", "tiny", *flags], {})
    assert isinstance(read, EngineArguments)
    return read


def parameters(sequences: Bounds = Bounds(), tokens: Bounds = Bounds()) -> Parameters:  # noqa: B008 - frozen
    return Parameters(max_num_seqs=sequences, max_num_batched_tokens=tokens)


def bounds(*given: Bounds, flags: tuple[str, ...] = (), present: Setting = PRESENT) -> SettingBounds:
    found = bounds_of(parameters(*given), present, arguments(*flags))
    assert isinstance(found, SettingBounds), found
    return found


def test_without_declared_bounds_the_present_setting_sets_them():
    assert bounds() == SettingBounds(
        lowest=Setting(max_num_seqs=8, max_num_batched_tokens=512),
        highest=Setting(max_num_seqs=512, max_num_batched_tokens=8192),
    )


def test_defaults_give_way_to_a_highest_value_below_them():
    found = bounds(Bounds(max=4), Bounds(max=256))
    assert found.highest == Setting(max_num_seqs=4, max_num_batched_tokens=256)
    assert found.lowest == Setting(max_num_seqs=4, max_num_batched_tokens=256)


def test_defaults_give_way_to_a_lowest_value_above_them():
    assert bounds(Bounds(), Bounds(min=16_384)).highest.max_num_batched_tokens == 16_384


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ((Bounds(), Bounds(max=2048)), ("--no-enable-chunked-prefill", "--max-model-len=4096")),
        ((Bounds(min=4096), Bounds(max=2048)), ()),
    ],
)
def test_bounds_that_leave_no_working_setting_are_refused_and_not_exceeded(
    given: tuple[Bounds, ...], flags: tuple[str, ...]
):
    found = bounds_of(parameters(*given), PRESENT, arguments(*flags))
    assert isinstance(found, TargetProblem)
    assert found.reason == "BoundsTooNarrow"


limits = st.none() | st.integers(1, 1_048_576)


@given(limits, limits, limits, limits, st.integers(1, MOST_SEQUENCES), st.integers(1, MOST_TOKENS), st.booleans())
def test_any_accepted_bounds_are_kept_or_refused(
    low_n: int | None,
    high_n: int | None,
    low_m: int | None,
    high_m: int | None,
    present_n: int,
    present_m: int,
    chunked: bool,
):
    try:
        declared = parameters(Bounds(min=low_n, max=high_n), Bounds(min=low_m, max=high_m))
    except ValueError:
        return  # the API server refuses it
    if bounds_problem(declared) is not None:
        return
    flags = () if chunked else ("--no-enable-chunked-prefill", "--max-model-len=4096")
    present = Setting(max_num_seqs=present_n, max_num_batched_tokens=present_m)
    found = bounds_of(declared, present, arguments(*flags))
    if isinstance(found, TargetProblem):
        return
    lowest, highest = found.lowest, found.highest
    assert lowest.max_num_seqs <= highest.max_num_seqs <= (high_n or MOST_SEQUENCES)
    assert (low_m or 1) <= lowest.max_num_batched_tokens <= highest.max_num_batched_tokens <= (high_m or MOST_TOKENS)
    assert (low_n or 1) <= lowest.max_num_seqs
    assert highest.max_num_seqs <= highest.max_num_batched_tokens


def test_more_sequences_than_can_be_set_are_refused():
    problem = bounds_problem(parameters(Bounds(min=70_000)))
    assert problem is not None
    assert "maxNumSeqs" in problem


def test_the_present_setting_is_read_from_the_words_or_not_at_all():
    def container(*args: str) -> ContainerView:
        words = ContainerWords(command=["vllm"], args=["serve", "tiny", *args])
        return ContainerView("vllm", "vllm/vllm-openai:v0.32.0", words, {}, (8000,), 1)

    assert present_setting(container("--max-num-seqs=7")) == Setting(max_num_seqs=7, max_num_batched_tokens=2048)
    assert present_setting(container("--max-num-seqs=70000")) is None
    assert present_setting(container("--max-num-seqs=many")) is None


@pytest.mark.parametrize("args", [["--flag"] * 509, ["--chat-template", "x" * 16_300], ["--flag"] * 700])
def test_words_that_no_status_could_hold_are_read_and_refused(args: list[str]):
    made = template()
    made["spec"]["containers"][1]["args"] = ["example/chat-8b", *args]
    found = resolve(parse_workload(deployment(made)), TargetRef(kind="Deployment", name="chat"))
    assert isinstance(found, TargetProblem)
    assert found.reason == "ArgumentTooLong"
    assert "into a file" in found.message


def test_the_words_of_another_container_may_be_as_long_as_they_like():
    made = template()
    made["spec"]["containers"][0]["args"] = ["x" * 20_000] * 600
    assert isinstance(resolve(parse_workload(deployment(made)), TargetRef(kind="Deployment", name="chat")), Target)


def test_the_longest_words_that_are_accepted_can_be_rewritten_and_stored():
    made = template()
    made["spec"]["containers"][1]["args"] = ["example/chat-8b", *["--enforce-eager"] * 507]
    found = resolve(parse_workload(deployment(made)), TargetRef(kind="Deployment", name="chat"))
    assert isinstance(found, Target)
    after = words_with(found.container, PRESENT)
    assert isinstance(after, ContainerWords)
    assert ContainerWords.model_validate(found.container.words.to_resource()) == found.container.words
