"""One stage of a run in simulated time: the product's load agent decides when it ends, on a simulated engine.

The agent sees what it would have seen: counters, and the rows of the requests that have ended. Those that were sent
before the end are served as if the load had gone on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.tuner.engines import Engine
from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import Evidence, Outcome, Samples, StageSpec, StageState, StageStatus
from kneekeeper.domain.samples import Bools, Floats, Ints
from kneekeeper.domain.steady import MAX_WARMUP_SHARE, Course
from kneekeeper.domain.twin.simulate import Load, TwinResult
from kneekeeper.domain.workload import Workload, draw_workload
from kneekeeper.load.ending import End, Rest, StageEnd
from kneekeeper.load.progress import Progress

TICK_S = 0.05
LOOK_EVERY_S = 1.0
LOOK_EVERY_SHARE = 0.05
"""The agent looks more often, which costs more than the stage itself: stages here are a little longer."""

_NO_FAULT = Evidence(send_lag_p99_s=0.0, loop_lag_p99_s=0.0, cpu_share=0.0, achieved_over_offered=1.0)


@dataclass(frozen=True)
class StageRun:
    """What the agent tells of a stage, and how long the engine was busy with it."""

    status: StageStatus
    samples: Samples
    duration_s: float


class Watched(Progress):
    """What the agent knows at the simulated time `now_s`, of requests in the order in which they were sent."""

    def __init__(self, result: TwinResult, workload: Workload, timeout_s: float) -> None:
        super().__init__(0.0)
        self.late = result.last_s - result.arrival_s > timeout_s
        ended_s = np.where(self.late, result.arrival_s + timeout_s, result.last_s)
        first_s = np.minimum(result.first_s, ended_s)
        self._index = np.argsort(ended_s, kind="stable")
        self._sent_s, self._ended_s = result.arrival_s, ended_s[self._index]
        count = ended_s.size
        self.columns = {
            "index": np.arange(count, dtype=np.float64),
            "intended_s": result.arrival_s,
            "sent_s": result.arrival_s,
            "first_s": first_s,
            "last_s": ended_s,
            "prompt_tokens": workload.prompt_tokens.astype(np.float64),
            "output_tokens": workload.output_tokens.astype(np.float64),
            "first_chunk_tokens": np.ones(count),
        }
        self._t_s = np.arange(TICK_S, self._ended_s[-1] + TICK_S, TICK_S)
        sent, first, ended = (
            np.searchsorted(np.sort(at), self._t_s, side="right").astype(np.float64)
            for at in (self._sent_s, first_s, ended_s)
        )
        self._course = (sent, ended, sent - first, _tokens_until(self._t_s, first_s, ended_s, workload.output_tokens))
        self.now_s = 0.0

    @property
    def rows(self) -> int:
        return int(np.searchsorted(self._ended_s, self.now_s, side="right"))

    @property
    def sent(self) -> int:
        return int(np.searchsorted(self._sent_s, self.now_s, side="right"))

    @property
    def elapsed_s(self) -> float:
        return self.now_s

    def column(self, name: str) -> Floats:
        return np.asarray(self.columns[name][self._index[: self.rows]], dtype=np.float64)

    def ok(self) -> Bools:
        return np.asarray(~self.late[self._index[: self.rows]], dtype=np.bool_)

    def course(self) -> Course:
        seen = int(np.searchsorted(self._t_s, self.now_s, side="right"))
        sent, ended, waiting, answers = self._course
        return Course(self._t_s[:seen], sent[:seen], ended[:seen], waiting[:seen], answers[:seen])

    def last_end_s(self, sent: int) -> float:
        """When the last of the first `sent` requests ended."""
        return float(self.columns["last_s"][:sent].max())


def run_stage(engine: Engine, setting: Setting, spec: StageSpec, seed: int, begun_s: float) -> StageRun:
    """Run a stage to its end on an engine that was idle. `begun_s` is the simulated time at which it begins."""
    workload = draw_workload(spec)
    users = min(spec.arrivals.users, len(workload)) if isinstance(spec.arrivals, Closed) else 0
    arrival_s = np.zeros(len(workload))
    arrival_s[: workload.intended_s.size] = workload.intended_s
    load = Load(arrival_s, workload.prompt_tokens, workload.output_tokens, users=users)
    seen = Watched(engine.serve(load, setting, seed, begun_s), workload, spec.limits.request_timeout_s)
    watch = StageEnd(spec, workload)
    end: End | None = None
    while end is None:
        seen.now_s += max(LOOK_EVERY_S, LOOK_EVERY_SHARE * seen.now_s)
        end = watch.look(seen)
    return _told(spec, workload, seen, watch, end)


def _told(spec: StageSpec, workload: Workload, seen: Watched, watch: StageEnd, end: End) -> StageRun:
    sent, stopped_s = seen.sent, seen.now_s
    all_sent = sent == len(workload)
    loaded_s = min(stopped_s, float(seen.columns["sent_s"].max())) if all_sent else stopped_s
    steadiness = watch.steadiness
    warmup_s = min(steadiness.warmup_s, loaded_s if steadiness.steady else MAX_WARMUP_SHARE * loaded_s)
    ended_s = stopped_s if end.rest is Rest.ABORT else max(stopped_s, seen.last_end_s(sent))
    seen.now_s = ended_s  # the agent tells its rates when the last answers are in: tokens in flight at the stop count
    rates = seen.rates(warmup_s, loaded_s)
    ended = seen.columns["last_s"][:sent] <= ended_s
    outcome = np.where(~ended, Outcome.ABORTED, np.where(seen.late[:sent], Outcome.TIMEOUT, Outcome.OK))
    columns = {name: values[:sent] for name, values in seen.columns.items()}
    cut = {name: np.minimum(columns[name], ended_s).tolist() for name in ("first_s", "last_s")}
    samples = Samples(
        warmup_s=warmup_s,
        intended_s=columns["intended_s"].tolist(),
        sent_s=columns["sent_s"].tolist(),
        **cut,
        prompt_tokens=workload.prompt_tokens[:sent].tolist(),
        output_tokens=workload.output_tokens[:sent].tolist(),
        first_chunk_tokens=[1] * sent,
        chunks=workload.output_tokens[:sent].tolist(),
        outcome=[Outcome(each) for each in outcome],
        request_class=workload.request_class[:sent].tolist() if workload.request_class.size else [],
    )
    timed_out = int((outcome == Outcome.TIMEOUT).sum())
    status = StageStatus(
        id=spec.id,
        state=StageState(end.state),
        reason=end.reason,
        message=end.message,
        elapsed_s=stopped_s,
        warmup_s=warmup_s,
        planned=sent,
        sent=sent,
        succeeded=int((outcome == Outcome.OK).sum()),
        failed=0,
        timed_out=timed_out,
        in_flight=0,
        requests_per_s=rates.requests_per_s,
        output_tokens_per_s=rates.output_tokens_per_s,
        mean_concurrency=rates.mean_concurrency,
        evidence=_NO_FAULT,
    )
    return StageRun(status, samples, ended_s)


def _tokens_until(t_s: Floats, first_s: Floats, last_s: Floats, output_tokens: Ints) -> Floats:
    """Tokens that all requests have had by each time: the first at its time, the others evenly up to the last."""
    speed = np.where(last_s > first_s, (output_tokens - 1) / np.maximum(last_s - first_s, 1e-9), 0.0)

    def until(at: Floats, weight: Floats) -> Floats:
        order = np.argsort(at)
        total = np.concatenate([[0.0], np.cumsum(weight[order])])
        return np.asarray(total[np.searchsorted(at[order], t_s, side="right")], dtype=np.float64)

    begun = until(first_s, speed) * t_s - until(first_s, speed * first_s)
    over = until(last_s, speed) * t_s - until(last_s, speed * last_s)
    return begun - over + until(first_s, np.ones(first_s.size))
