"""Runs one stage: starts a worker, collects what it tells, and ends the stage when its end has come."""

from __future__ import annotations

import asyncio
import logging
import math
import time

import numpy as np

from kneekeeper.api.stage import TARGET_UNREACHABLE, Closed, Outcome, Samples, StageSpec, StageState, StageStatus
from kneekeeper.domain.steady import MAX_WARMUP_SHARE
from kneekeeper.domain.workload import NO_REQUESTS, TraceMissing, draw_workload
from kneekeeper.load import evidence
from kneekeeper.load.answers import read_exchange
from kneekeeper.load.ending import End, Rest, StageEnd, after_drain
from kneekeeper.load.frames import Command, Exchange, Finished, FrameError, Loop, Plan, Refused, Scheme, Started, Tick
from kneekeeper.load.progress import Progress
from kneekeeper.load.rendering import Renderer
from kneekeeper.load.sources import SourceError, Sources
from kneekeeper.load.worker_process import WorkerProcess

LOOK_EVERY_S = 0.25
LOOK_EVERY_SHARE = 0.02
"""A long stage is looked at less often: a look costs time in proportion to its length."""

START_LIMIT_S = 60.0
"""From the worker's start to the first request: opening connections and rendering the first requests."""

MAX_DRAIN_S = 60.0
"""What has not ended so long after the last send is broken off; a shorter request timeout comes first."""

HEARTBEAT_LIMIT_S = 30.0
"""A worker that has not told anything for so long is stopped or hangs."""

ABORT_LIMIT_S = 5.0
"""An abort takes a moment; a worker that has not told of its end by then is killed."""

_LOG = logging.getLogger("kneekeeper.load.stage_runner")

_WORKER_DIED = End(
    StageState.INVALID,
    "WorkerDied",
    "The sending process died. Look for out-of-memory kills of the load agent.",
    Rest.ABORT,
)


class StageRunner:
    """One stage. Await `run` once; `status` and `samples` may be asked for at any time."""

    def __init__(self, spec: StageSpec, api_key: str | None = None, sources: Sources | None = None) -> None:
        self.spec = spec
        self._api_key = api_key
        self._sources = sources if sources is not None else Sources()
        self._workload = NO_REQUESTS  # until `run` has drawn them
        self._watch = StageEnd(spec, self._workload)
        self._progress: Progress | None = None
        self._worker: WorkerProcess | None = None
        self._heard_at = 0.0
        self._stopped_s: float | None = None
        self._cancelled = asyncio.Event()
        self._outcome: End | None = None

    @property
    def over(self) -> bool:
        """Whether the stage has ended and its samples are complete."""
        return self._outcome is not None

    @property
    def worker_pid(self) -> int | None:
        """The sending process, while there is one."""
        return None if self._worker is None or self.over else self._worker.pid

    def cancel(self) -> None:
        """End the stage at once; one that is over stays what it is."""
        self._cancelled.set()

    async def run(self) -> None:
        """Run the stage to its end. Whatever goes wrong becomes its state; only the task's cancellation raises."""
        try:
            await self._run()
        except Exception as error:  # else the stage would run for ever in the eyes of who polls it
            _LOG.exception("stage %s", self.spec.id)
            message = f"The load agent failed ({type(error).__name__}); its log says how. Start the stage anew."
            self._outcome = End(StageState.INVALID, "AgentFailed", message, Rest.ABORT)

    async def _run(self) -> None:
        try:
            inputs = await asyncio.to_thread(self._sources.read_inputs, self.spec)
            self._workload = draw_workload(self.spec, inputs.trace)
        except (SourceError, TraceMissing) as error:
            self._outcome = End(StageState.FAILED, "SourceUnreadable", f"{error}.", Rest.ABORT)
            return
        self._watch = StageEnd(self.spec, self._workload)
        try:
            orders = Renderer(self.spec, self._workload, self._api_key, inputs.prompts).orders()
            worker = self._worker = await WorkerProcess.start(self._plan(), orders)
        except OSError as error:
            self._outcome = End(StageState.INVALID, "WorkerFailed", f"No worker can be started: {error}.", Rest.ABORT)
            return
        listening = asyncio.create_task(self._listen(worker))
        cancelling = asyncio.create_task(self._cancelled.wait())
        try:
            end = await self._until_end(listening, cancelling)
            self._stopped_s = self._elapsed_s()
            if end.rest is Rest.DRAIN:
                worker.command(Command.STOP)
                await asyncio.wait({listening, cancelling}, timeout=MAX_DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
                if self._cancelled.is_set():
                    end = _cancelled()
            if not listening.done():
                worker.command(Command.ABORT)
                await asyncio.wait({listening}, timeout=ABORT_LIMIT_S)
        finally:
            for task in (listening, cancelling):
                task.cancel()
            await worker.kill()
        self._outcome = self._judged(end)

    def status(self) -> StageStatus:
        """How the stage stands."""
        progress, outcome = self._progress, self._outcome
        if progress is None:
            progress = Progress(0.0)
        planned = self._planned(progress)
        elapsed_s = progress.elapsed_s if self._stopped_s is None else self._stopped_s
        loaded_s = min(elapsed_s, self._last_send_s(progress))
        steadiness = self._watch.steadiness
        warmup_s = min(steadiness.warmup_s, loaded_s if steadiness.steady else MAX_WARMUP_SHARE * loaded_s)
        rates = progress.rates(warmup_s, loaded_s)
        ok, late = progress.count(Outcome.OK), progress.count(Outcome.TIMEOUT)
        return StageStatus(
            id=self.spec.id,
            state=StageState.RUNNING if outcome is None else outcome.state,
            reason="" if outcome is None else outcome.reason,
            message="" if outcome is None else outcome.message,
            elapsed_s=elapsed_s,
            warmup_s=warmup_s,
            planned=planned,
            sent=progress.sent,
            succeeded=ok,
            failed=progress.count(Outcome.ERROR),
            timed_out=late,
            in_flight=progress.sent - ok - late - progress.count(Outcome.ERROR),
            requests_per_s=rates.requests_per_s,
            output_tokens_per_s=rates.output_tokens_per_s,
            mean_concurrency=rates.mean_concurrency,
            evidence=evidence.measure(progress, planned),
        )

    def samples(self) -> Samples:
        """All requests that have ended; complete once the stage is over."""
        return (self._progress or Progress(0.0)).samples(self.status().warmup_s, self._workload.request_class)

    def _plan(self) -> Plan:
        spec, arrivals = self.spec, self.spec.arrivals
        return Plan(
            loop=Loop.CLOSED if isinstance(arrivals, Closed) else Loop.OPEN,
            users=self._workload.intended_s.size if isinstance(arrivals, Closed) else 0,
            rate=_thinking_rate(arrivals) if isinstance(arrivals, Closed) else self._workload.mean_rate,
            orders=len(self._workload),
            request_timeout_s=spec.limits.request_timeout_s,
            port=spec.target.port,
            host=spec.target.host,
            scheme=Scheme.HTTP if spec.target.tls is None else Scheme.HTTPS,
            server_name="" if spec.target.tls is None else spec.target.tls.server_name,
            ca_file="" if spec.target.tls is None else spec.target.tls.ca_file,
        )

    async def _listen(self, worker: WorkerProcess) -> End | None:
        """Take in what the worker tells. Returns None after its last word, else why there was none."""
        try:
            async for report in worker.reports():
                self._heard_at = time.monotonic()
                match report:
                    case Started():
                        self._progress = Progress(report.at)
                    case Refused():
                        return End(StageState.FAILED, TARGET_UNREACHABLE, f"{report.message}.", Rest.ABORT)
                    case Tick() if self._progress is not None:
                        self._progress.add_tick(report)
                    case Exchange() if self._progress is not None:
                        asked = int(self._workload.prompt_tokens[report.index])
                        self._progress.add_row(read_exchange(report, self._progress.started_at, asked))
                    case Finished():
                        return None
        except FrameError as error:
            return End(StageState.INVALID, "WorkerFailed", f"{error}.", Rest.ABORT)
        return _WORKER_DIED

    async def _until_end(self, listening: asyncio.Task[End | None], cancelling: asyncio.Task[bool]) -> End:
        self._heard_at = begun = time.monotonic()
        while True:
            pause_s = max(LOOK_EVERY_S, LOOK_EVERY_SHARE * self._elapsed_s())
            await asyncio.wait({listening, cancelling}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            if self._cancelled.is_set():
                return _cancelled()
            if listening.done():
                return listening.result() or _WORKER_DIED
            now = time.monotonic()
            if self._progress is None:
                if now - begun > START_LIMIT_S:
                    message = f"The worker did not start within {START_LIMIT_S:g} s. Give the load agent more CPU."
                    return End(StageState.INVALID, "ClientTooSlow", message, Rest.ABORT)
            elif now - self._heard_at > HEARTBEAT_LIMIT_S:
                message = f"The worker told nothing for {HEARTBEAT_LIMIT_S:g} s. Give the load agent more CPU."
                return End(StageState.INVALID, "ClientStarved", message, Rest.ABORT)
            elif (end := self._watch.look(self._progress)) is not None:
                return end

    def _judged(self, end: End) -> End:
        """What the stage ended as, now that all is known: a client at fault makes its results void."""
        progress = self._progress
        if progress is None:
            return end
        end = after_drain(end, progress)
        if end.state not in (StageState.DONE, StageState.SATURATED):
            return end
        measured = evidence.measure(progress, self._planned(progress))
        fault = evidence.fault(measured, self.spec, evidence.reference_s(self.spec.slo, progress))
        return end if fault is None else End(StageState.INVALID, fault.reason, fault.message, end.rest)

    def _elapsed_s(self) -> float:
        return 0.0 if self._progress is None else self._progress.elapsed_s

    def _last_send_s(self, progress: Progress) -> float:
        """When the last of all requests was sent, after which the load fades; infinite as long as some are left."""
        if not progress.rows or progress.sent < len(self._workload):
            return math.inf
        return float(progress.column("sent_s").max())

    def _planned(self, progress: Progress) -> int:
        """How many requests were due: by the schedule in an open loop, else those that were sent."""
        if isinstance(self.spec.arrivals, Closed):
            return progress.sent
        until_s = progress.elapsed_s if self._stopped_s is None else self._stopped_s
        return max(progress.sent, int(np.searchsorted(self._workload.intended_s, until_s, side="right")))


def _thinking_rate(arrivals: Closed) -> float:
    """The most requests per second of users who think; 0 where they do not: they have a connection each."""
    return arrivals.users / arrivals.think_time_s if arrivals.think_time_s > 0 else 0.0


def _cancelled() -> End:
    return End(StageState.CANCELLED, "Cancelled", "The stage was cancelled.", Rest.ABORT)
