from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kneekeeper.api.offered_load import Closed, Open
from kneekeeper.api.stage import NOT_STEADY, Limits, Outcome, Slo, StageSpec, StageState
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.ending import FAILURES_IN_A_ROW, End, Rest, StageEnd, after_drain
from kneekeeper.load.frames import Tick
from kneekeeper.load.progress import Progress
from tests.unit.test_load_evidence import progress, row, spec

LIMITS = {"min_requests": 50, "max_requests": 10_000, "max_duration_s": 100.0}


def ordered(**values: Any) -> StageSpec:
    limits = Limits(**(LIMITS | values.pop("limits", {})))
    return spec(limits=limits, arrivals=values.pop("arrivals", Closed(users=4)), **values)


def loop(stage: StageSpec, elapsed_s: float, *, failed_every: int = 0, ttft_s: float = 0.1) -> Progress:
    """Four users whose requests take 0.4 s, out of step, as the agent has seen them after `elapsed_s`."""
    starts = np.arange(0.0, elapsed_s, 0.1)
    seen = Progress(0.0)
    for at in np.arange(0.02, elapsed_s + 0.001, 0.02):
        sent, ended = int((starts <= at).sum()), int((starts + 0.4 <= at).sum())
        seen.add_tick(Tick(float(at), 0.0, sent, ended, 0, int(at / 0.02), 0.0))
    for index, start in enumerate(starts[starts + 0.4 <= elapsed_s]):
        outcome = Outcome.ERROR if failed_every and index % failed_every == 0 else Outcome.OK
        at = float(start)
        seen.add_row(row(index, at, at + ttft_s, at + 0.4, outcome=outcome, problem="boom" if outcome else ""))
    return seen


def look(stage: StageSpec, seen: Progress) -> End | None:
    return StageEnd(stage, draw_workload(stage)).look(seen)


def test_a_stage_ends_when_it_is_steady_and_has_enough_requests():
    stage = ordered()
    assert look(stage, loop(stage, 3.0)) is None
    end = look(stage, loop(stage, 10.0))
    assert end is not None
    assert (end.state, end.reason, end.rest) == (StageState.DONE, "Steady", Rest.DRAIN)


def test_a_closed_loop_of_several_agents_ends_when_one_has_no_requests_left_for_its_users():
    stage = ordered(agents=2, limits={"max_requests": 60, "min_requests": 60})
    seen = loop(stage, 5.0)
    apart = Progress(0.0, 0.0)
    vars(apart).update({name: value for name, value in vars(seen).items() if name not in ("started_at", "_lags")})
    apart.add_tick(Tick(5.02, 0.0, 29, 25, 0, 250, 0.0))
    assert look(stage, apart) is None
    apart.add_tick(Tick(5.02, 0.0, 30, 25, 0, 250, 0.0), 1)
    end = look(stage, apart)
    assert end is not None
    assert end.reason == "MaxRequests"
    assert "an agent has sent all of its part" in end.message


def test_enough_requests_are_not_enough_without_token_gaps():
    stage = ordered(limits={"min_token_gaps": 100_000})
    assert look(stage, loop(stage, 10.0)) is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_requests": 60, "min_requests": 60}, "MaxRequests"),
        ({"max_duration_s": 5.0, "min_requests": 999}, "MaxDuration"),
    ],
)
def test_a_bound_ends_a_stage_that_has_not_enough(limits, reason):
    stage = ordered(limits=limits)
    end = look(stage, loop(stage, 6.0))
    assert end is not None
    assert (end.state, end.reason, end.rest) == (StageState.DONE, reason, Rest.DRAIN)


@pytest.mark.parametrize("limits", [{"max_requests": 20, "min_requests": 20}, {"max_duration_s": 2.0}])
def test_a_bound_that_ends_a_stage_before_it_is_steady_says_so(limits):
    stage = ordered(limits=limits)
    end = look(stage, loop(stage, 2.1))
    assert end is not None
    assert (end.state, end.reason) == (StageState.DONE, NOT_STEADY)
    assert "too short to tell" in end.message


def test_errors_without_a_success_between_them_end_the_stage_as_failed():
    stage = ordered()
    end = look(stage, loop(stage, 10.0, failed_every=1))
    assert end is not None
    assert (end.state, end.rest) == (StageState.FAILED, Rest.ABORT)
    assert "boom" in end.message


def test_scattered_errors_are_results_and_do_not_end_a_stage():
    stage = ordered(limits={"min_requests": 999})
    assert look(stage, loop(stage, 10.0, failed_every=2)) is None


def test_as_many_errors_as_requests_in_flight_are_needed_to_give_up():
    seen = progress(*(row(i, 0.0, 1.0, 1.0, outcome=Outcome.ERROR) for i in range(FAILURES_IN_A_ROW)))
    seen.add_tick(Tick(101.0, 0.0, 500, FAILURES_IN_A_ROW, 0, 0, 0.0))
    stage = ordered(arrivals=Closed(users=480))
    assert look(stage, seen) is None


def test_a_sequential_stage_goes_on_until_its_test_decides():
    stage = ordered(sequential=True, slo=Slo(ttft_s=0.5), min_pass_requests=400, limits={"max_duration_s": 1e4})
    assert look(stage, loop(stage, 20.0)) is None, "enough requests do not end it"
    end = look(stage, loop(stage, 60.0))
    assert end is not None
    assert (end.state, end.reason) == (StageState.DONE, "TestDecided")
    assert "fewer than 1%" in end.message


def test_a_sequential_stage_that_misses_its_targets_ends_soon():
    stage = ordered(sequential=True, slo=Slo(ttft_s=0.05))
    end = look(stage, loop(stage, 10.0))
    assert end is not None
    assert "more than 1%" in end.message


def slowing(stage: StageSpec, elapsed_s: float, steady_s: float) -> Progress:
    """As `loop`, but from `steady_s` on each answer takes longer than the one before, with the same TTFT."""
    starts = np.arange(0.0, elapsed_s, 0.1)
    ends = starts + 0.4 + 0.1 * np.maximum(starts - steady_s, 0.0)
    seen = Progress(0.0)
    for at in np.arange(0.02, elapsed_s + 0.001, 0.02):
        seen.add_tick(Tick(float(at), 0.0, int((starts <= at).sum()), int((ends <= at).sum()), 0, int(at / 0.02), 0.0))
    for index in np.flatnonzero(ends <= elapsed_s):
        start = float(starts[index])
        seen.add_row(row(int(index), start, start + 0.1, float(ends[index])))
    return seen


def test_a_stage_that_was_steady_once_and_drifts_when_it_would_pass_goes_on_and_ends_unsteady():
    limits = {"max_duration_s": 100.0}
    stage = ordered(sequential=True, slo=Slo(ttft_s=0.5), min_pass_requests=450, limits=limits)
    watch = StageEnd(stage, draw_workload(stage))
    assert watch.look(slowing(stage, 15.0, steady_s=20.0)) is None
    warmup_s = watch.steadiness.warmup_s
    assert watch.steadiness.steady
    assert watch.look(slowing(stage, 60.0, steady_s=20.0)) is None, "no request missed, but they pile up"
    assert watch.look(loop(stage, 60.0)) is not None, "one that did not drift would have passed"
    end = watch.look(slowing(stage, 101.0, steady_s=20.0))
    assert end is not None
    assert (end.state, end.reason) == (StageState.DONE, NOT_STEADY)
    assert watch.steadiness.warmup_s == warmup_s, "the operator's replay sees the same requests"


def test_an_open_loop_with_a_growing_backlog_is_saturated():
    stage = ordered(arrivals=Open(rate=20))
    seen = Progress(0.0)
    for at in np.arange(0.02, 20, 0.02):
        sent, ended = int(20 * at), int(10 * at)
        seen.add_tick(Tick(float(at), 0.0, sent, ended, sent - ended - 2, int(at / 0.02), 0.0))
    end = look(stage, seen)
    assert end is not None
    assert (end.state, end.rest) == (StageState.SATURATED, Rest.ABORT)
    assert look(ordered(arrivals=Closed(users=400)), seen) is None, "a closed loop cannot saturate"


def test_too_many_requests_in_flight_are_a_backlog():
    seen = Progress(0.0)
    seen.add_tick(Tick(1.0, 0.0, 9000, 10, 8990, 0, 0.0))
    end = look(ordered(arrivals=Open(rate=9000)), seen)
    assert end is not None
    assert end.state is StageState.SATURATED


def test_a_stage_without_a_success_has_failed_however_it_ended():
    done = End(StageState.DONE, "MaxDuration", "", Rest.DRAIN)
    failed = after_drain(done, progress(row(0, 0.0, 1.0, 1.0, outcome=Outcome.TIMEOUT, problem="no answer")))
    assert (failed.state, failed.reason) == (StageState.FAILED, "NoSuccess")
    assert "no answer" in failed.message
    assert after_drain(done, progress(row(0, 0.0, 1.0, 1.0))) == done
    cancelled = End(StageState.CANCELLED, "Cancelled", "", Rest.ABORT)
    assert after_drain(cancelled, progress()) == cancelled
