"""The scheduler's limits move between steps, whatever the version, and no step's own checks ever fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.livetune.limits import Envelope, Governor, Limits, Refusal
from kneekeeper.livetune.scheduler_hook import (
    UNSUPPORTED_ENGINE,
    UNSUPPORTED_VERSION,
    envelope_of,
    hook,
    version_refusal,
)

START = Limits(16, 256)


class SchedulerUpTo024:
    """The rules of vLLM's that limits take part in: admission, and the checks at the end of a step."""

    def __init__(self, **config: Any) -> None:
        self.vllm_config = configuration(**config)
        self.scheduler_config = self.vllm_config.scheduler_config
        self.max_num_running_reqs = START.max_num_seqs
        self.max_num_scheduled_tokens = START.max_num_batched_tokens
        self.running: list[int] = []
        self.waiting = 0
        self.admitted = 0

    def full(self) -> bool:
        return len(self.running) == self.max_num_running_reqs

    def schedule(self, throttle_prefills: bool = False) -> int:
        self.admitted = 0
        budget = self.max_num_scheduled_tokens - min(self.max_num_scheduled_tokens, len(self.running))
        while self.waiting and budget and not self.full():
            self.waiting -= 1
            self.admitted += 1
            self.running.append(0)
            budget -= 1
        assert len(self.running) <= self.max_num_running_reqs
        return self.max_num_scheduled_tokens - budget


class SchedulerUpTo030(SchedulerUpTo024):
    def full(self) -> bool:
        return len(self.running) >= self.max_num_running_reqs


class SchedulerFrom031(SchedulerUpTo024):
    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.max_num_active_reqs = self.max_num_running_reqs

    def full(self) -> bool:
        return len(self.running) >= self.max_num_active_reqs


class SchedulerOfItsOwn(SchedulerFrom031):
    def schedule(self, throttle_prefills: bool = False) -> int:
        return 0


GENERATIONS = [SchedulerUpTo024, SchedulerUpTo030, SchedulerFrom031]


def configuration(
    *,
    data_parallel_size: int = 1,
    speculative_tokens: int = 0,
    multimodal: bool = False,
    max_model_len: int = 200,
    mamba_block: int = 0,
    **scheduling: Any,
) -> SimpleNamespace:
    scheduler_config = SimpleNamespace(
        **{"enable_chunked_prefill": True, "disable_chunked_mm_input": False, **scheduling}
    )
    return SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=data_parallel_size),
        speculative_config=SimpleNamespace(num_speculative_tokens=speculative_tokens) if speculative_tokens else None,
        model_config=SimpleNamespace(max_model_len=max_model_len, is_multimodal_model=multimodal),
        cache_config=SimpleNamespace(block_size=mamba_block),
        scheduler_config=scheduler_config,
    )


def envelope(scheduler: Any, base: type | None = None, approved: Limits | None = None) -> Envelope:
    found = envelope_of(scheduler, base or type(scheduler), approved)
    assert isinstance(found, Envelope), found
    return found


def hooked(scheduler: Any) -> Governor:
    governor = Governor(envelope(scheduler), lambda: 0.0)
    hook(scheduler, governor)
    return governor


@pytest.mark.parametrize("version", ["0.9.2", "0.10.0", "0.24.0", "0.32.0", "0.33.5", "0.32.0+cpu", "0.31.0rc1"])
def test_versions_whose_scheduler_is_known_are_taken(version: str):
    assert version_refusal(version) is None


@pytest.mark.parametrize("version", ["0.9.1", "0.8.5", "0.34.0", "1.0.0", "dev", ""])
def test_other_versions_are_refused(version: str):
    refusal = version_refusal(version)
    assert refusal is not None
    assert refusal.reason == UNSUPPORTED_VERSION


@pytest.mark.parametrize("generation", GENERATIONS)
@given(
    moves=st.lists(
        st.tuples(st.integers(1, 16), st.integers(16, 256), st.integers(0, 40), st.integers(0, 16)), max_size=40
    )
)
def test_under_any_changes_no_check_fails_and_nothing_is_admitted_above_what_is_wanted(
    generation: type[SchedulerUpTo024], moves: list[tuple[int, int, int, int]]
):
    scheduler = generation()
    governor = hooked(scheduler)
    for seqs, tokens, arrivals, ends in moves:
        assert governor.ask(Limits(seqs, tokens)) is None
        scheduler.waiting += arrivals
        before = len(scheduler.running)
        scheduled = scheduler.schedule()
        assert scheduled <= tokens
        assert len(scheduler.running) <= max(seqs, before)
        assert scheduler.admitted == 0 or len(scheduler.running) <= seqs
        del scheduler.running[:ends]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_raised_limit_admits_in_the_next_step(generation: type[SchedulerUpTo024]):
    scheduler = generation()
    governor = hooked(scheduler)
    scheduler.waiting = 40
    for wanted in (2, 16):
        governor.ask(Limits(wanted, 256))
        scheduler.schedule()
        assert len(scheduler.running) == wanted


@pytest.mark.parametrize("generation", GENERATIONS)
def test_running_sequences_go_on_after_a_lower_limit_and_the_rest_waits(generation: type[SchedulerUpTo024]):
    scheduler = generation()
    governor = hooked(scheduler)
    scheduler.waiting = 40
    scheduler.schedule()
    governor.ask(Limits(4, 256))
    seen = []
    for _ in range(14):
        scheduler.schedule()
        seen.append(len(scheduler.running))
        del scheduler.running[:1]
    assert seen == [16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 4]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_engine_goes_on_with_its_start_values_when_setting_them_fails(
    generation: type[SchedulerUpTo024], caplog: pytest.LogCaptureFixture
):
    scheduler = generation()
    governor = hooked(scheduler)
    governor.ask(Limits(1, 16))
    scheduler.schedule()

    def broken(running: int) -> Limits:
        raise RuntimeError("broken")

    governor.next_step = broken  # type: ignore[method-assign]
    scheduler.waiting = 40
    for _ in range(3):
        scheduler.schedule()
    assert len(scheduler.running) == START.max_num_seqs
    assert caplog.text.count("live tuning stops") == 1


def test_arguments_and_answers_of_a_step_pass_through():
    class Echo(SchedulerFrom031):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            return throttle_prefills

    scheduler = Echo()
    hooked(scheduler)
    assert scheduler.schedule(True) is True
    assert scheduler.schedule(throttle_prefills=False) is False


def test_a_derived_scheduler_that_schedules_as_its_base_is_taken():
    class Asynchronous(SchedulerFrom031):
        pass

    assert envelope(Asynchronous(), SchedulerFrom031).start == START


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        (SchedulerOfItsOwn(), "SchedulerOfItsOwn"),
        (SchedulerFrom031(data_parallel_size=2), "2 data parallel ranks"),
    ],
)
def test_an_engine_for_which_the_recipe_is_not_known_is_refused(scheduler: Any, told: str):
    refusal = envelope_of(scheduler, SchedulerFrom031, None)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == UNSUPPORTED_ENGINE
    assert told in refusal.message


def test_the_lower_of_two_start_values_is_the_ceiling():
    scheduler = SchedulerFrom031()
    scheduler.max_num_active_reqs = 4
    assert envelope(scheduler).start == Limits(4, 256)


@pytest.mark.parametrize(
    ("config", "least"),
    [
        ({}, 1),
        ({"enable_chunked_prefill": False}, 200),
        ({"enable_chunked_prefill": False, "max_model_len": 4096}, 256),
        ({"enable_chunked_prefill": True, "chunked_prefill_enabled": False}, 200),
        ({"multimodal": True}, 1),
        ({"disable_chunked_mm_input": True}, 1),
        ({"multimodal": True, "disable_chunked_mm_input": True}, 256),
    ],
)
def test_the_smallest_token_budget_is_one_with_which_every_prompt_makes_progress(config: dict[str, Any], least: int):
    assert envelope(SchedulerFrom031(**config)).least_tokens == least


def test_a_step_ends_at_the_blocks_of_a_state_cache():
    scheduler = SchedulerFrom031(mamba_block=64)
    scheduler.need_mamba_block_aligned_split = True  # type: ignore[attr-defined]
    assert envelope(scheduler).least_tokens == 64


def test_each_speculating_sequence_needs_its_draft_too():
    assert envelope(SchedulerFrom031(speculative_tokens=3)).tokens_per_sequence == 4


def test_approved_values_must_suit_the_engine():
    assert envelope(SchedulerFrom031(), approved=Limits(8, 128)).fall_back_to == Limits(8, 128)
    assert isinstance(envelope_of(SchedulerFrom031(), SchedulerFrom031, Limits(17, 128)), Refusal)
