"""When a stage ends, and as what. Pure: looked at a few times a second while the stage runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kneekeeper.api.stage import NOT_STEADY, Outcome, StageSpec, StageState
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.arrivals import gap_variation
from kneekeeper.domain.certify import MIN_PASS_REQUESTS, SequentialTest
from kneekeeper.domain.steady import Steadiness, saturation, steadiness
from kneekeeper.domain.workload import Workload
from kneekeeper.load.progress import Progress

FAILURES_IN_A_ROW = 20
"""So many errors without a success between them, or as many as are in flight if that is more: the target is gone."""

MAX_IN_FLIGHT = 8192
"""An open loop with more has a backlog, whatever the tests say; and the agent would run out of ports."""

_TEST_STEP = 10
"""The sequential test is looked at every ten requests, here and when the operator replays it."""


class Rest(Enum):
    """What happens to the requests in flight when a stage ends."""

    DRAIN = auto()
    ABORT = auto()


@dataclass(frozen=True)
class End:
    """A stage ends: `state`, a reason for machines and a message for people."""

    state: StageState
    reason: str
    message: str
    rest: Rest


class StageEnd:
    """Watches one stage. Remembers the sequential test and, once the stage was steady, its warm-up."""

    def __init__(self, spec: StageSpec, workload: Workload) -> None:
        self._spec, self._workload = spec, workload
        self._open = spec.arrivals.process != "Closed"
        floor = spec.min_pass_requests or MIN_PASS_REQUESTS
        self._test = SequentialTest(min_pass_requests=floor) if spec.sequential else None
        self._frozen: Steadiness | None = None
        self._tested = 0
        self.steadiness = Steadiness(0.0, "the stage is too short to tell")

    def look(self, progress: Progress) -> End | None:
        """The end, if it has come."""
        self.steadiness = self._frozen or self._judge(progress)
        return self._failed(progress) or self._saturated(progress) or self._decided(progress) or self._full(progress)

    def _judge(self, progress: Progress) -> Steadiness:
        """A closed loop's first requests are cut short and belong to the warm-up: up to the last user's start."""
        intended_s = progress.column("intended_s")
        starts = 0.0 if self._open else float(self._workload.intended_s[-1]) + 1e-9
        return steadiness(
            progress.course(),
            intended_s=intended_s,
            ttft_s=progress.column("first_s") - intended_s,
            mean_e2e_s=progress.mean_e2e_s(),
            warmup_at_least_s=starts,
        )

    def _failed(self, progress: Progress) -> End | None:
        in_flight = progress.sent - progress.rows
        if progress.failures_in_a_row < max(FAILURES_IN_A_ROW, in_flight):
            return None
        message = f"The last {progress.failures_in_a_row} requests failed: {progress.last_problem}"
        return End(StageState.FAILED, "TargetFails", message, Rest.ABORT)

    def _saturated(self, progress: Progress) -> End | None:
        if not self._open:
            return None
        in_flight = progress.sent - progress.rows
        if in_flight >= MAX_IN_FLIGHT:
            message = f"{in_flight} requests are in flight, more than the agent can hold."
            return End(StageState.SATURATED, "BacklogGrows", message, Rest.ABORT)
        found = saturation(progress.course(), gap_variation(self._spec.arrivals, self._workload.intended_s))
        return None if found is None else End(StageState.SATURATED, "BacklogGrows", found.message, Rest.ABORT)

    def _decided(self, progress: Progress) -> End | None:
        """The test gets its requests once the stage is steady; the warm-up stays as it was then, so that the
        operator's replay sees the same requests."""
        test = self._test
        if test is None or not self.steadiness.steady:
            return None
        self._frozen = self.steadiness
        misses = progress.settled_misses(self.steadiness.warmup_s, self._spec.slo)
        while test.verdict is None and self._tested + _TEST_STEP <= len(misses):
            test.update(misses[self._tested : self._tested + _TEST_STEP])
            self._tested += _TEST_STEP
        if test.verdict is None:
            return None
        share = "fewer" if test.verdict is Verdict.PASS else "more"
        message = f"{sum(misses[: self._tested])} of {self._tested} requests missed the SLO: {share} than 1% do."
        return End(StageState.DONE, "TestDecided", message, Rest.DRAIN)

    def _full(self, progress: Progress) -> End | None:
        limits = self._spec.limits
        rows, gaps = progress.warm(self.steadiness.warmup_s)
        enough = rows >= limits.min_requests and gaps >= limits.min_token_gaps
        if enough and self.steadiness.steady and self._test is None:
            return End(StageState.DONE, "Steady", f"{rows} requests after warm-up.", Rest.DRAIN)
        if progress.sent >= limits.max_requests:
            reason, what = "MaxRequests", f"all {limits.max_requests} requests were sent"
        elif progress.elapsed_s >= limits.max_duration_s:
            reason, what = "MaxDuration", f"{limits.max_duration_s:g} s have passed"
        else:
            return None
        if self.steadiness.steady:
            return End(StageState.DONE, reason, f"Ended because {what}.", Rest.DRAIN)
        message = f"Ended because {what}; {self.steadiness.reason}."
        return End(StageState.DONE, NOT_STEADY, message, Rest.DRAIN)


def after_drain(end: End, progress: Progress) -> End:
    """A stage without one success measured nothing: it Failed, however it ended."""
    if progress.count(Outcome.OK) or end.state in (StageState.CANCELLED, StageState.INVALID, StageState.SATURATED):
        return end
    if end.state is StageState.FAILED:
        return end
    problem = progress.last_problem or "none was answered"
    return End(StageState.FAILED, "NoSuccess", f"No request succeeded: {problem}. Read the engine's log.", end.rest)
