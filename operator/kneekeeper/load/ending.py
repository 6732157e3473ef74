"""When a stage ends, and as what. Pure: looked at a few times a second while the stage runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kneekeeper.api.stage import NOT_STEADY, Outcome, StageSpec, StageState
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.arrivals import gap_variation
from kneekeeper.domain.certify import pass_floor
from kneekeeper.domain.critical_load import critical_load_doubt
from kneekeeper.domain.mix_verdicts import MixTest
from kneekeeper.domain.steady import Steadiness, saturation, steadiness
from kneekeeper.domain.workload import Workload
from kneekeeper.load.progress import Progress
from kneekeeper.load.shares import Share

FAILURES_IN_A_ROW = 20
"""So many errors without a success between them, or as many as are in flight if that is more: the target is gone."""

MAX_IN_FLIGHT = 8192
"""An open loop with more has a backlog, whatever the tests say; and the agent would run out of ports."""


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
    """Watches one stage. Remembers the sequential test and, once the stage was steady, its warm-up.

    `steadiness` is what was found last.
    """

    def __init__(self, spec: StageSpec, workload: Workload) -> None:
        self._spec, self._workload = spec, workload
        self._open = spec.arrivals.process != "Closed"
        self._shares = [Share(part, spec.agents) for part in range(spec.agents)] if spec.agents > 1 else []
        floor = spec.min_pass_requests or pass_floor(spec.arrivals, spec.slo)
        self._test = MixTest(spec, floor) if spec.sequential else None
        self._warmup_s: float | None = None
        self.steadiness = Steadiness(0.0, "the stage is too short to tell")

    def look(self, progress: Progress) -> End | None:
        """The end, if it has come."""
        if self._warmup_s is None:
            self.steadiness = self._judge(progress)
        return self._failed(progress) or self._saturated(progress) or self._decided(progress) or self._full(progress)

    def _judge(self, progress: Progress) -> Steadiness:
        """The warm-up of a sequential stage stays what it was when the stage was first steady.

        A closed loop's first requests are cut short and belong to the warm-up: up to the last user's start.
        """
        intended_s = progress.column("intended_s")
        starts = 0.0 if self._open else float(self._workload.intended_s[-1]) + 1e-9
        found = steadiness(
            progress.course(),
            intended_s=intended_s,
            ttft_s=progress.column("first_s") - intended_s,
            mean_e2e_s=progress.mean_e2e_s(),
            warmup_at_least_s=starts,
        )
        return found if self._warmup_s is None else Steadiness(self._warmup_s, found.reason)

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
        if in_flight >= MAX_IN_FLIGHT * self._spec.agents:
            message = f"{in_flight} requests are in flight, more than can be held."
            return End(StageState.SATURATED, "BacklogGrows", message, Rest.ABORT)
        found = saturation(progress.course(), gap_variation(self._spec.arrivals, self._workload.intended_s))
        return None if found is None else End(StageState.SATURATED, "BacklogGrows", found.message, Rest.ABORT)

    def _decided(self, progress: Progress) -> End | None:
        """The test gets its requests once the stage was steady; the warm-up stays as it was then, so that the
        operator's replay sees the same requests. To be called steady once is easy while a stage is short: one that
        passes must be steady still, and must exclude critical load."""
        test = self._test
        if test is None or (self._warmup_s is None and not self.steadiness.steady):
            return None
        self._warmup_s = self.steadiness.warmup_s
        settled = progress.settled(self._warmup_s, self._workload.request_class)
        misses, seen = settled.misses_of_mix(self._spec.slos), test.requests
        test.update(misses[seen:], settled.request_class[seen:])
        if test.verdict is None:
            return None
        if test.verdict is Verdict.PASS:
            self.steadiness = self._judge(progress)
            if not self.steadiness.steady or critical_load_doubt(settled, self._spec.arrivals):
                return None
        share = "fewer" if test.verdict is Verdict.PASS else "more"
        message = f"{misses.sum()} of {misses.size} requests missed the SLO: {share} than 1% do."
        return End(StageState.DONE, "TestDecided", message, Rest.DRAIN)

    def _full(self, progress: Progress) -> End | None:
        limits = self._spec.limits
        rows, gaps = progress.warm(self.steadiness.warmup_s)
        enough = rows >= limits.min_requests and gaps >= limits.min_token_gaps
        if enough and self.steadiness.steady and self._test is None:
            return End(StageState.DONE, "Steady", f"{rows} requests after warm-up.", Rest.DRAIN)
        if progress.sent >= limits.max_requests:
            reason, what = "MaxRequests", f"all {limits.max_requests} requests were sent"
        elif not self._open and self._one_has_none_left(progress):
            reason, what = "MaxRequests", f"an agent has sent all of its part of the {limits.max_requests} requests"
        elif progress.elapsed_s >= limits.max_duration_s:
            reason, what = "MaxDuration", f"{limits.max_duration_s:g} s have passed"
        else:
            return None
        self.steadiness = self._judge(progress)
        if self.steadiness.steady:
            return End(StageState.DONE, reason, f"Ended because {what}.", Rest.DRAIN)
        message = f"Ended because {what}; {self.steadiness.reason}."
        return End(StageState.DONE, NOT_STEADY, message, Rest.DRAIN)

    def _one_has_none_left(self, progress: Progress) -> bool:
        """Whether an agent's users have no requests any more: from then on fewer users are there than were declared."""
        return any(progress.sent_by(s.part) >= s.of(len(self._workload)) for s in self._shares)


def after_drain(end: End, progress: Progress) -> End:
    """A stage without one success measured nothing: it Failed, however it ended."""
    if progress.count(Outcome.OK) or end.state in (StageState.CANCELLED, StageState.INVALID, StageState.SATURATED):
        return end
    if end.state is StageState.FAILED:
        return end
    problem = progress.last_problem or "none was answered"
    return End(StageState.FAILED, "NoSuccess", f"No request succeeded: {problem}. Read the engine's log.", end.rest)
