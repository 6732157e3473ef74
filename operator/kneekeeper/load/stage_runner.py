"""Runs one stage: starts its workers, collects what they tell, and ends the stage when its end has come."""

from __future__ import annotations

import asyncio
import logging
import math
import time

import numpy as np

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import TARGET_UNREACHABLE, Outcome, Samples, StageSpec, StageState, StageStatus
from kneekeeper.domain.steady import MAX_WARMUP_SHARE
from kneekeeper.domain.workload import NO_REQUESTS, TraceMissing, draw_workload
from kneekeeper.load import evidence
from kneekeeper.load.answers import read_exchange
from kneekeeper.load.crew import NOBODY, Crew, Team, Worker
from kneekeeper.load.ending import End, Rest, StageEnd, after_drain
from kneekeeper.load.frames import Command, Exchange, Finished, FrameError, Ready, Refused, Started, Tick
from kneekeeper.load.guard import UsersGuard
from kneekeeper.load.helper import HelperError
from kneekeeper.load.progress import Progress
from kneekeeper.load.rendering import Renderer
from kneekeeper.load.shares import Share
from kneekeeper.load.sources import SourceError, Sources
from kneekeeper.load.worker import TICK_S

LOOK_EVERY_S = 0.25
LOOK_EVERY_SHARE = 0.02
"""A long stage is looked at less often: a look costs time in proportion to its length."""

START_LIMIT_S = 60.0
"""From the worker's start to the first request: opening connections and rendering the first requests."""

MAX_DRAIN_S = 60.0
"""What has not ended so long after the last send is broken off; a shorter request timeout comes first."""

HEARTBEAT_LIMIT_S = 30.0
"""A worker that has not told anything for so long is stopped or hangs."""

MAX_START_SPREAD_S = 0.5
"""Workers of several agents that take longer to hear that they may begin do not make one stage."""

HELPER_LOST = "HelperLost"
"""The reason of a stage of which another agent's share was lost."""

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

    def __init__(
        self, spec: StageSpec, api_key: str | None = None, sources: Sources | None = None, team: Team = NOBODY
    ) -> None:
        """`team` has the helpers of a stage of several agents."""
        self.spec = spec
        self._team = team
        self._api_key = api_key
        self._sources = sources if sources is not None else Sources()
        self._workload = NO_REQUESTS  # until `run` has drawn them
        self._watch = StageEnd(spec, self._workload)
        self._progress: Progress | None = None
        self._crew: Crew | None = None
        self._ready: set[int] = set()
        self._begun_at = 0.0
        self._heard_at: dict[int, float] = {}
        self._stopped_s: float | None = None
        self._cancelled = asyncio.Event()
        self._outcome: End | None = None

    @property
    def over(self) -> bool:
        """Whether the stage has ended and its samples are complete."""
        return self._outcome is not None

    @property
    def worker_pid(self) -> int | None:
        """This agent's sending process, while there is one."""
        return None if self._crew is None or self.over else self._crew.pid

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
        guard = UsersGuard(self.spec) if self.spec.guard is not None else None
        if guard is not None and (end := await guard.begin()) is not None:
            self._outcome = end
            return
        try:
            orders = Renderer(self.spec, self._workload, self._api_key, inputs.prompts).orders(
                Share(0, self.spec.agents)
            )
            crew = self._crew = await Crew.start(self.spec, self._workload, orders, self._team)
        except OSError as error:
            self._outcome = End(StageState.INVALID, "WorkerFailed", f"No worker can be started: {error}.", Rest.ABORT)
            return
        except HelperError as error:
            self._outcome = End(StageState.INVALID, HELPER_LOST, str(error), Rest.ABORT)
            return
        listening = asyncio.create_task(self._listen(crew))
        cancelling = asyncio.create_task(self._cancelled.wait())
        guarding = asyncio.create_task(_never() if guard is None else guard.watch(self._sent_at))
        try:
            end = await self._until_end(listening, cancelling, guarding)
            self._stopped_s = self._elapsed_s()
            if end.rest is Rest.DRAIN:
                crew.command(Command.STOP)
                await asyncio.wait(
                    {listening, cancelling, guarding}, timeout=MAX_DRAIN_S, return_when=asyncio.FIRST_COMPLETED
                )
                if self._cancelled.is_set():
                    end = _cancelled()
                elif guarding.done():
                    end = guarding.result()
            if not listening.done():
                crew.command(Command.ABORT)
                await asyncio.wait({listening}, timeout=ABORT_LIMIT_S)
        finally:
            for task in (listening, cancelling, guarding):
                task.cancel()
            await crew.kill()
        if guard is not None and end.state in (StageState.DONE, StageState.SATURATED):
            end = await self._settled(guard) or end
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

    async def _listen(self, crew: Crew) -> End | None:
        """Take in what all workers tell. Returns None after their last words, else why there was none."""
        tasks = [asyncio.create_task(self._hear(crew, part, worker)) for part, worker in enumerate(crew.workers)]
        try:
            for heard in asyncio.as_completed(tasks):
                if (end := await heard) is not None:
                    return end
            return None
        finally:
            for task in tasks:
                task.cancel()

    async def _hear(self, crew: Crew, part: int, worker: Worker) -> End | None:
        try:
            async for report in worker.reports():
                self._heard_at[part] = time.monotonic()
                progress = self._progress
                match report:
                    case Ready():
                        self._ready.add(part)
                        if len(self._ready) == len(crew.workers):
                            self._begin(crew)
                    case Refused():
                        return End(StageState.FAILED, TARGET_UNREACHABLE, f"{report.message}.", Rest.ABORT)
                    case Started() if progress is not None:
                        progress.started_at[part] = report.at
                        if part and self._heard_at[part] - self._begun_at > MAX_START_SPREAD_S:
                            return _apart(crew.address_of(part))
                    case Tick() if progress is not None:
                        progress.add_tick(report, part)
                    case Exchange() if progress is not None:
                        prompt = int(self._workload.prompt_tokens[report.index])
                        output = int(self._workload.output_tokens[report.index])
                        progress.add_row(read_exchange(report, progress.started_at[part], prompt, output))
                    case Finished() if progress is not None:
                        progress.end_part(part)
                        return None
        except FrameError as error:
            return End(StageState.INVALID, "WorkerFailed", f"{error}.", Rest.ABORT)
        return _lost(crew.address_of(part)) if part else _WORKER_DIED

    def _begin(self, crew: Crew) -> None:
        """All workers are ready: let them begin together."""
        self._progress = Progress(*[math.nan] * len(crew.workers))
        self._begun_at = time.monotonic()
        self._heard_at = dict.fromkeys(range(len(crew.workers)), self._begun_at)
        crew.command(Command.START)

    async def _until_end(
        self, listening: asyncio.Task[End | None], cancelling: asyncio.Task[bool], guarding: asyncio.Task[End]
    ) -> End:
        begun = time.monotonic()
        while True:
            pause_s = max(LOOK_EVERY_S, LOOK_EVERY_SHARE * self._elapsed_s())
            await asyncio.wait({listening, cancelling, guarding}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            if self._cancelled.is_set():
                return _cancelled()
            if guarding.done():
                return guarding.result()
            if listening.done():
                return listening.result() or _WORKER_DIED
            now = time.monotonic()
            if self._progress is None:
                if now - begun > START_LIMIT_S:
                    message = f"The workers did not start within {START_LIMIT_S:g} s. Give the load agent more CPU."
                    return End(StageState.INVALID, "ClientTooSlow", message, Rest.ABORT)
            elif now - min(self._heard_at.values()) > HEARTBEAT_LIMIT_S:
                message = f"A worker told nothing for {HEARTBEAT_LIMIT_S:g} s. Give the load agent more CPU."
                return End(StageState.INVALID, "ClientStarved", message, Rest.ABORT)
            elif (end := self._watch.look(self._progress)) is not None:
                return end

    async def _sent_at(self, at: float) -> int:
        """How many requests were sent by `at` (`time.perf_counter`), and hardly later."""
        while self._progress is not None:
            sent = self._progress.sent_at(at)
            if sent is not None:
                return sent
            await asyncio.sleep(TICK_S)
        return 0  # no worker was told to begin

    async def _settled(self, guard: UsersGuard) -> End | None:
        """What the engine's own counters say against the stage, now that all its requests have ended."""
        progress = self._progress
        if progress is None:
            return None
        answered = progress.count(Outcome.OK)
        return await guard.settle(answered, progress.sent - answered, int(progress.column("output_tokens").sum()))

    def _judged(self, end: End) -> End:
        """What the stage ended as, now that all is known: a client at fault, or another load than was asked for, makes
        its results void."""
        progress = self._progress
        if progress is None:
            return end
        end = after_drain(end, progress)
        if end.state not in (StageState.DONE, StageState.SATURATED):
            return end
        measured = evidence.measure(progress, self._planned(progress))
        fault = evidence.fault(measured, self.spec, evidence.reference_s(self.spec.slo, progress))
        fault = fault or evidence.answers_fault(progress)
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


async def _never() -> End:
    """The end of a stage that nobody else can end."""
    return await asyncio.Future()


def _cancelled() -> End:
    return End(StageState.CANCELLED, "Cancelled", "The stage was cancelled.", Rest.ABORT)


def _lost(address: str) -> End:
    message = f"The load agent at {address} died or is not reached any more. The stage is measured again with another."
    return End(StageState.INVALID, HELPER_LOST, message, Rest.ABORT)


def _apart(address: str) -> End:
    message = f"The load agent at {address} began more than {MAX_START_SPREAD_S:g} s late. Look at the network between."
    return End(StageState.INVALID, "StartsApart", message, Rest.ABORT)
