"""The twin's plans are the scheduler's, step by step, whatever the load; and its own additions do what they say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.domain.scheduler import Request, Scheduler, SchedulerLimits
from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.domain.twin import Law, Load, Step, TwinError, TwinLimits, log_normal_noise, simulate

BLOCK = 4
LAW = Law(
    base_s=2**-7,
    per_sequence_s=2**-12,
    per_kv_token_s=2**-20,
    per_prefill_token_s=2**-14,
    per_prefill_token_squared_s=2**-22,
    per_prefill_pair_s=2**-21,
    prefill_step_s=2**-9,
    eager_s=2**-10,
    graph_sizes=(1, 2, 4, 8),
)
"""Powers of two, so that sums are exact and both sides see an arrival in the same step."""


def load(arrivals: list[float], prompts: list[int], outputs: list[int], users: int = 0) -> Load:
    return Load(np.array(arrivals), np.array(prompts), np.array(outputs), users=users)


@st.composite
def cases(draw: st.DrawFn) -> tuple[TwinLimits, Load]:
    chunked = draw(st.booleans())
    longest = draw(st.integers(8, 80))
    seqs = draw(st.integers(1, 8))
    limits = TwinLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs, 120)) if chunked else max(longest, seqs),
        kv_blocks=-(-longest // BLOCK) + draw(st.integers(0, 20)),
        block_size_tokens=BLOCK,
        chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 3, 10])),
    )
    count = draw(st.integers(1, 30))
    prompts = [draw(st.integers(1, longest - 1)) for _ in range(count)]
    outputs = [draw(st.integers(1, longest - prompt)) for prompt in prompts]
    gaps = [draw(st.sampled_from([0.0, 0.0, 2**-8, 2**-6, 1.0])) for _ in range(count)]
    return limits, load(np.cumsum(gaps).tolist(), prompts, outputs)


@dataclass(frozen=True)
class Reference:
    """What the scheduler does when it is driven along the twin's time line."""

    steps: list[Step]
    first_s: dict[str, float]
    last_s: dict[str, float]
    preemptions: dict[str, int]


def reference(limits: TwinLimits, load: Load) -> Reference:
    scheduler = Scheduler(
        SchedulerLimits(
            max_num_seqs=limits.running,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=10_000,
            kv_blocks=limits.kv_blocks,
            block_size_tokens=limits.block_size_tokens,
            chunked_prefill=limits.chunked_prefill,
            long_prefill_token_threshold=limits.long_prefill_token_threshold,
        )
    )
    found = Reference([], {}, {}, {})
    now, arrived = 0.0, 0
    while True:
        while arrived < len(load) and load.arrival_s[arrived] <= now:
            prompt, output = int(load.prompt_tokens[arrived]), int(load.output_tokens[arrived])
            scheduler.add(Request(str(arrived), prompt, output))
            arrived += 1
        if not scheduler.has_requests:
            if arrived == len(load):
                return found
            now = float(load.arrival_s[arrived])
            continue
        plan = scheduler.step()
        duration = duration_of(plan)
        found.steps.append(
            Step(
                now,
                duration,
                plan.decodes,
                plan.prefills,
                plan.prefill_tokens,
                plan.prefill_token_pairs,
                plan.kv_tokens,
                len(plan.admitted),
                len(plan.preempted),
            )
        )
        now += duration
        for victim in plan.preempted:
            found.preemptions[victim] = found.preemptions.get(victim, 0) + 1
        outcome = scheduler.complete_step()
        for request in outcome.sampled:
            found.first_s.setdefault(request, now)
        for request in outcome.finished:
            found.last_s[request] = now


def duration_of(plan: StepPlan) -> float:
    sequences, extra = plan.sequences, 0.0
    if plan.total_tokens > LAW.graph_sizes[-1]:
        extra = LAW.eager_s
    elif plan.prefills == 0:
        sequences = next(size for size in LAW.graph_sizes if size >= plan.total_tokens)
    duration = LAW.base_s + extra + LAW.per_sequence_s * sequences + LAW.per_kv_token_s * plan.kv_tokens
    if plan.prefills:
        duration += (
            LAW.prefill_step_s
            + LAW.per_prefill_token_s * plan.prefill_tokens
            + LAW.per_prefill_token_squared_s * plan.prefill_tokens**2
            + LAW.per_prefill_pair_s * plan.prefill_token_pairs
        )
    return duration


@settings(max_examples=200, deadline=None)
@given(cases())
def test_every_step_is_the_one_that_the_scheduler_plans(case: tuple[TwinLimits, Load]) -> None:
    limits, requests = case
    expected = reference(limits, requests)
    found = simulate(requests, limits, LAW, log_steps=len(expected.steps) + 1)
    assert list(found.log) == expected.steps
    assert found.steps == len(expected.steps)
    names = [str(index) for index in range(len(requests))]
    assert found.first_s.tolist() == [expected.first_s[name] for name in names]
    assert found.last_s.tolist() == [expected.last_s[name] for name in names]
    assert found.preemptions.tolist() == [expected.preemptions.get(name, 0) for name in names]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_steps_that_are_taken_at_once_end_where_single_steps_do(case: tuple[TwinLimits, Load]) -> None:
    limits, requests = case
    at_once = simulate(requests, limits, LAW)
    singly = simulate(requests, limits, LAW, log_steps=at_once.steps)
    assert at_once.steps == singly.steps
    assert at_once.first_s.tolist() == singly.first_s.tolist()
    assert at_once.last_s.tolist() == singly.last_s.tolist()


def crowd(count: int = 40, prompt: int = 20, output: int = 10, gap_s: float = 0.0) -> Load:
    return load([gap_s * n for n in range(count)], [prompt] * count, [output] * count)


AMPLE = TwinLimits(max_num_seqs=64, max_num_batched_tokens=512, kv_blocks=10_000, block_size_tokens=BLOCK)


def test_fewer_active_sequences_are_fewer_at_once():
    limits = replace(AMPLE, max_num_active_seqs=3)
    found = simulate(crowd(), limits, LAW, log_steps=10_000)
    assert max(step.decodes + step.prefills for step in found.log) == 3


def test_the_api_process_rejects_what_is_beyond_the_queue_limits():
    by_count = simulate(crowd(), replace(AMPLE, max_num_queued_reqs=5), LAW)
    assert by_count.rejected.tolist() == [False] * 5 + [True] * 35
    by_tokens = simulate(crowd(), replace(AMPLE, max_num_queued_tokens=50), LAW)
    assert by_tokens.rejected.tolist() == [False] * 3 + [True] * 37  # 60 tokens are 50 and more


def test_the_prefix_cache_saves_the_prompt_tokens_that_it_serves():
    cold = crowd(1, prompt=100)
    warm = replace(cold, prefix_hit_tokens=np.array([80]))
    assert simulate(cold, AMPLE, LAW, log_steps=1).log[0].prefill_tokens == 100
    step = simulate(warm, AMPLE, LAW, log_steps=1).log[0]
    assert (step.prefill_tokens, step.kv_tokens) == (20, 100)


def test_a_closed_loop_has_as_many_requests_in_flight_as_users():
    found = simulate(replace(crowd(100), users=4), AMPLE, LAW, log_steps=10_000)
    assert max(step.decodes + step.prefills for step in found.log) == 4
    assert np.all(np.diff(found.arrival_s) >= 0)
    in_flight = [np.sum((found.arrival_s <= at) & (found.last_s > at)) for at in found.arrival_s[4:-4]]
    assert max(in_flight) <= 4


@settings(max_examples=100, deadline=None)
@given(cases())
def test_an_api_process_only_ever_delays(case: tuple[TwinLimits, Load]) -> None:
    limits, requests = case
    law = replace(LAW, api_request_s=2**-8, api_step_s=2**-12, api_token_s=2**-13)
    at_once = simulate(requests, limits, law)
    singly = simulate(requests, limits, law, log_steps=10_000)
    assert at_once.first_s.tolist() == pytest.approx(singly.first_s.tolist())
    assert at_once.last_s.tolist() == pytest.approx(singly.last_s.tolist())
    assert np.all(at_once.ttft_s >= law.api_request_s + law.base_s)


def test_noise_and_drift_change_durations_and_not_the_mean():
    plain = simulate(crowd(400, gap_s=0.01), AMPLE, LAW)
    noisy = simulate(crowd(400, gap_s=0.01), AMPLE, replace(LAW, noise=log_normal_noise(0.1, seed=1)), log_steps=10_000)
    drifting = simulate(crowd(400, gap_s=0.01), AMPLE, replace(LAW, drift=0.3, drift_period_s=1.0), log_steps=10_000)
    assert noisy.end_s == pytest.approx(plain.end_s, rel=0.05)
    assert len({step.duration_s for step in noisy.log}) > 0.9 * noisy.steps
    assert drifting.log[5].duration_s != simulate(crowd(400, gap_s=0.01), AMPLE, LAW, log_steps=6).log[5].duration_s


@pytest.mark.parametrize(
    ("limits", "requests", "told"),
    [
        (AMPLE, crowd(2, output=0), "at least one"),
        (AMPLE, load([1.0, 0.0], [1, 1], [1, 1]), "ascend"),
        (replace(AMPLE, kv_blocks=2), crowd(1), "KV cache"),
        (replace(AMPLE, chunked_prefill=False), crowd(1, prompt=600), "enable chunked prefill"),
        (AMPLE, replace(crowd(1), prefix_hit_tokens=np.array([20])), "less than the prompt"),
        (AMPLE, replace(crowd(2), arrival_s=np.zeros(1)), "differ in length"),
    ],
)
def test_what_an_engine_would_refuse_is_an_error(limits: TwinLimits, requests: Load, told: str):
    with pytest.raises(TwinError, match=told):
        simulate(requests, limits, LAW)


def test_limits_with_which_vllm_does_not_start_are_an_error():
    with pytest.raises(TwinError, match="greater than or equal"):
        replace(AMPLE, max_num_batched_tokens=63)
    with pytest.raises(TwinError, match="at least 1"):
        replace(AMPLE, max_num_seqs=0)
