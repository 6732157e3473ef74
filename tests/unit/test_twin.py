"""The twin's plans are the scheduler's, step by step, whatever the load; and its own additions do what they say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.domain.scheduler import Request, Scheduler, SchedulerLimits
from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.domain.twin import Law, Load, Step, TwinLimits, simulate

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


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(cases())
def test_steps_that_are_taken_at_once_end_where_single_steps_do(case: tuple[TwinLimits, Load]) -> None:
    limits, requests = case
    at_once = simulate(requests, limits, LAW)
    singly = simulate(requests, limits, LAW, log_steps=at_once.steps)
    assert at_once.steps == singly.steps
    assert at_once.first_s.tolist() == singly.first_s.tolist()
    assert at_once.last_s.tolist() == singly.last_s.tolist()
