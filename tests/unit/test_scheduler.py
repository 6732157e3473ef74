"""Properties of the scheduler: limits, conservation, order, progress; and what vLLM does step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.domain.scheduler import Request, Scheduler, SchedulerError, SchedulerLimits
from kneekeeper.domain.step_plan import StepOutcome, StepPlan

BLOCK = 4


@st.composite
def limits(draw: st.DrawFn) -> SchedulerLimits:
    chunked = draw(st.booleans())
    max_model_len = draw(st.integers(8, 80))
    return SchedulerLimits(
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.integers(1, 120)) if chunked else max_model_len,
        max_model_len=max_model_len,
        kv_blocks=-(-max_model_len // BLOCK) + draw(st.integers(0, 20)),
        block_size_tokens=BLOCK,
        chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 3, 10])),
    )


@st.composite
def workloads(draw: st.DrawFn) -> tuple[SchedulerLimits, list[Request]]:
    bounds = draw(limits())
    requests: list[Request] = []
    for index in range(draw(st.integers(1, 20))):
        prompt_tokens = draw(st.integers(1, bounds.max_model_len - 1))
        output_tokens = draw(st.integers(1, bounds.max_model_len - prompt_tokens))
        requests.append(Request(f"r{index}", prompt_tokens, output_tokens))
    return bounds, requests


class Ledger:
    """An account of the scheduler's work that is kept from its plans alone."""

    def __init__(self, bounds: SchedulerLimits, requests: list[Request]) -> None:
        self.bounds = bounds
        self.requests = {request.id: request for request in requests}
        self.computed: dict[str, int] = {}
        self.sampled = dict.fromkeys(self.requests, 0)
        self.order: list[str] = []
        self.finished: list[str] = []

    def plan(self, plan: StepPlan) -> None:
        for victim in plan.preempted:
            del self.computed[victim]
        for request_id in plan.admitted:
            self.computed[request_id] = 0
            if request_id not in self.order:
                self.order.append(request_id)
        for request_id, tokens in plan.tokens.items():
            self.computed[request_id] += tokens

    def outcome(self, outcome: StepOutcome) -> None:
        for request_id in outcome.sampled:
            self.sampled[request_id] += 1
        for request_id in outcome.finished:
            del self.computed[request_id]
            self.finished.append(request_id)

    @property
    def blocks(self) -> int:
        return sum(-(-tokens // self.bounds.block_size_tokens) for tokens in self.computed.values())


def steps(scheduler: Scheduler, ledger: Ledger) -> Iterator[StepPlan]:
    """Steps until nothing is left. Fails when that takes longer than the worst schedule could."""
    work = sum(request.prompt_tokens + request.output_tokens for request in ledger.requests.values())
    for _ in range(10 * (work + 10) * (1 + len(ledger.requests))):
        if not scheduler.has_requests:
            return
        plan = scheduler.step()
        ledger.plan(plan)
        yield plan
        ledger.outcome(scheduler.complete_step())
    pytest.fail("the requests starve")


@given(workloads())
@settings(deadline=None)
def test_no_step_exceeds_the_token_budget_or_the_sequence_limit(
    workload: tuple[SchedulerLimits, list[Request]],
) -> None:
    bounds, requests = workload
    scheduler = Scheduler(bounds)
    for request in requests:
        scheduler.add(request)
    for plan in steps(scheduler, Ledger(bounds, requests)):
        assert 1 <= sum(plan.tokens.values()) <= bounds.max_num_batched_tokens
        assert sum(plan.tokens.values()) == plan.total_tokens
        assert len(plan.tokens) == plan.sequences <= scheduler.num_running <= bounds.max_num_seqs


@given(workloads(), st.data())
@settings(deadline=None)
def test_every_request_finishes_with_exactly_its_tokens_whenever_it_arrives(
    workload: tuple[SchedulerLimits, list[Request]], data: st.DataObject
) -> None:
    bounds, requests = workload
    scheduler = Scheduler(bounds)
    ledger = Ledger(bounds, requests)
    arriving = list(reversed(requests))
    while arriving:
        for _ in range(min(len(arriving), data.draw(st.integers(1, 4)))):
            scheduler.add(arriving.pop())
        ledger.plan(scheduler.step())
        ledger.outcome(scheduler.complete_step())
    for _ in steps(scheduler, ledger):
        pass
    assert sorted(ledger.finished) == sorted(ledger.requests)
    assert ledger.sampled == {request.id: request.output_tokens for request in requests}
    assert scheduler.free_blocks == bounds.kv_blocks


@given(workloads())
@settings(deadline=None)
def test_blocks_in_use_are_those_that_the_computed_tokens_need(
    workload: tuple[SchedulerLimits, list[Request]],
) -> None:
    bounds, requests = workload
    scheduler = Scheduler(bounds)
    for request in requests:
        scheduler.add(request)
    ledger = Ledger(bounds, requests)
    for _ in steps(scheduler, ledger):
        assert scheduler.free_blocks >= 0
        assert ledger.blocks == bounds.kv_blocks - scheduler.free_blocks


@given(workloads())
@settings(deadline=None)
def test_requests_are_first_admitted_in_the_order_of_their_arrival(
    workload: tuple[SchedulerLimits, list[Request]],
) -> None:
    bounds, requests = workload
    scheduler = Scheduler(bounds)
    for request in requests:
        scheduler.add(request)
    ledger = Ledger(bounds, requests)
    for _ in steps(scheduler, ledger):
        pass
    assert ledger.order == [request.id for request in requests]


@given(workloads(), st.data())
@settings(deadline=None)
def test_an_abort_at_any_moment_frees_what_the_request_held_and_harms_no_other(
    workload: tuple[SchedulerLimits, list[Request]], data: st.DataObject
) -> None:
    bounds, requests = workload
    scheduler = Scheduler(bounds)
    for request in requests:
        scheduler.add(request)
    aborted = data.draw(st.sets(st.sampled_from([request.id for request in requests])))
    sampled = dict.fromkeys((request.id for request in requests), 0)
    pending = set(aborted)
    while scheduler.has_requests:
        if data.draw(st.booleans()) and pending:
            scheduler.abort(pending.pop())
        scheduler.step()
        if data.draw(st.booleans()) and pending:
            scheduler.abort(pending.pop())
        for request_id in scheduler.complete_step().sampled:
            sampled[request_id] += 1
    assert scheduler.free_blocks == bounds.kv_blocks
    assert scheduler.num_running == scheduler.num_waiting == 0
    for request in requests:
        if request.id not in aborted:
            assert sampled[request.id] == request.output_tokens


def small(**changes: int | bool) -> SchedulerLimits:
    values: dict[str, int | bool] = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "kv_blocks": 64,
        "block_size_tokens": BLOCK,
    }
    return SchedulerLimits(**(values | changes))  # type: ignore[arg-type]


def run_step(scheduler: Scheduler) -> tuple[StepPlan, StepOutcome]:
    return scheduler.step(), scheduler.complete_step()


def test_decodes_come_before_the_prefill_of_a_new_request_which_takes_what_is_left() -> None:
    scheduler = Scheduler(small())
    scheduler.add(Request("a", 8, 10))
    run_step(scheduler)
    scheduler.add(Request("b", 40, 2))
    plan, outcome = run_step(scheduler)
    assert plan.tokens == {"a": 1, "b": 15}
    assert (plan.decodes, plan.prefills, plan.prefill_tokens) == (1, 1, 15)
    assert outcome.sampled == ("a",)


def test_a_long_prompt_is_computed_in_chunks_and_its_first_token_comes_with_the_last_chunk() -> None:
    scheduler = Scheduler(small())
    scheduler.add(Request("a", 40, 2))
    chunks = []
    outcome = StepOutcome((), ())
    while not outcome.sampled:
        plan, outcome = run_step(scheduler)
        chunks.append(plan.tokens["a"])
    assert chunks == [16, 16, 8]


def test_without_chunked_prefill_a_prompt_waits_until_the_budget_holds_it_whole() -> None:
    scheduler = Scheduler(small(chunked_prefill=False))
    scheduler.add(Request("a", 10, 2))
    scheduler.add(Request("b", 10, 2))
    assert run_step(scheduler)[0].tokens == {"a": 10}
    assert run_step(scheduler)[0].tokens == {"a": 1, "b": 10}


def test_the_long_prefill_threshold_leaves_room_for_others_but_not_when_alone() -> None:
    alone = Scheduler(small(long_prefill_token_threshold=4))
    alone.add(Request("a", 30, 1))
    assert run_step(alone)[0].tokens == {"a": 16}
    shared = Scheduler(small(long_prefill_token_threshold=4))
    shared.add(Request("a", 30, 1))
    shared.add(Request("b", 3, 1))
    assert run_step(shared)[0].tokens == {"a": 4, "b": 3}


def test_when_blocks_run_out_the_last_running_request_is_preempted_and_recomputed_first() -> None:
    scheduler = Scheduler(small(kv_blocks=16, max_num_batched_tokens=64))
    scheduler.add(Request("old", 32, 30))
    scheduler.add(Request("young", 24, 30))
    scheduler.add(Request("next", 4, 1))
    plan, _ = run_step(scheduler)
    assert plan.admitted == ("old", "young", "next")
    plan = StepPlan({}, 0, 0, 0, 0.0, 0, (), ())
    while not plan.preempted:
        plan, _ = run_step(scheduler)
    assert plan.preempted == ("young",)
    assert plan.admitted == ()
    sampled = scheduler.generated_tokens("young")
    assert sampled > 0
    while "young" not in plan.admitted:
        plan, _ = run_step(scheduler)
    assert plan.tokens["young"] == 24 + sampled


def test_a_request_is_admitted_only_when_its_whole_prompt_fits_the_free_blocks() -> None:
    scheduler = Scheduler(small(kv_blocks=17))
    scheduler.add(Request("a", 40, 20))
    scheduler.add(Request("b", 40, 2))
    run_step(scheduler)
    assert run_step(scheduler)[0].tokens == {"a": 16}
    assert run_step(scheduler)[0].tokens == {"a": 8}
    assert scheduler.num_waiting == 1


def test_the_plan_sums_up_the_context_that_its_step_reads() -> None:
    scheduler = Scheduler(small())
    scheduler.add(Request("a", 24, 2))
    first, _ = run_step(scheduler)
    second, _ = run_step(scheduler)
    third, _ = run_step(scheduler)
    assert (first.kv_tokens, second.kv_tokens, third.kv_tokens) == (16, 24, 25)
    assert first.prefill_token_pairs == 16 * 8
    assert second.prefill_token_pairs == 8 * (16 + 4)
    assert third.prefill_token_pairs == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Request("a", 0, 1), "at least one"),
        (Request("a", 1, 0), "at least one"),
        (Request("a", 60, 5), "max_model_len"),
        (Request("a", 30, 20), "KV blocks"),
    ],
)
def test_a_request_that_could_never_finish_is_refused_with_the_reason(bad: Request, reason: str) -> None:
    with pytest.raises(SchedulerError, match=reason):
        Scheduler(small(kv_blocks=10)).add(bad)


def test_an_id_in_use_is_refused() -> None:
    scheduler = Scheduler(small())
    scheduler.add(Request("a", 1, 1))
    with pytest.raises(SchedulerError, match="exists already"):
        scheduler.add(Request("a", 1, 1))


def test_without_chunks_a_request_that_recomputation_could_not_hold_is_refused() -> None:
    with pytest.raises(SchedulerError, match="chunked prefill"):
        Scheduler(small(chunked_prefill=False)).add(Request("a", 10, 10))


def test_steps_are_planned_and_completed_in_turn() -> None:
    scheduler = Scheduler(small())
    with pytest.raises(SchedulerError, match=r"step\(\) first"):
        scheduler.complete_step()
    scheduler.step()
    with pytest.raises(SchedulerError, match=r"complete_step\(\) first"):
        scheduler.step()


def test_aborting_an_unknown_request_is_no_error() -> None:
    Scheduler(small()).abort("nobody")


@pytest.mark.parametrize("field", ["max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks"])
def test_limits_that_allow_no_progress_are_refused(field: str) -> None:
    with pytest.raises(SchedulerError, match=field):
        small(**{field: 0})
