"""This machine in the role of a cluster: what a run sees of it, and what a run may have done on it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from pydantic import SecretStr

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.stage import Samples, StageState, StageStatus
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.actions import (
    DeleteAgent,
    DeleteClone,
    EmitEvent,
    EnsureAgent,
    EnsureClone,
    RunAction,
    ScaleWorkload,
    StartStage,
    StoreSamples,
)
from kneekeeper.domain.names import stage_id
from kneekeeper.domain.observation import (
    EngineMetrics,
    PodPhase,
    PodView,
    RunObservation,
    StageView,
    Unreachable,
    WorkloadView,
)
from kneekeeper.load.sources import Sources
from kneekeeper.load.stages import StageConflict, Stages, UnknownStage
from kneekeeper.local.command import Address, ServerCommand
from kneekeeper.local.process import ServerProcess
from kneekeeper.local.served import BaseUrl, ServedModel, ServerError, is_healthy, read_models
from kneekeeper.observe.engine_http import EngineUnreachable
from kneekeeper.observe.engine_metrics import MetricsMissing, engine_metrics, scrape

_LOOK_EVERY_S = 0.1


@dataclass
class _Server:
    """One engine start."""

    start: int
    process: ServerProcess
    since: datetime
    words: ContainerWords
    ready: bool = False


class LocalPlace:
    """One run's server and load. Close it: then no process of it is left.

    `directory` takes the servers' logs and the samples of each stage.
    """

    def __init__(
        self,
        command: ServerCommand,
        address: Address,
        api_key: SecretStr | None,
        sources: Sources,
        directory: Path,
        http: httpx.AsyncClient,
        clock: Callable[[], datetime],
    ) -> None:
        self._command, self._address, self._directory, self._http = command, address, directory, http
        self._clock, self._sources = clock, sources
        self._server: _Server | None = None
        self._stages: Stages | None = None
        self._key = api_key
        self._served: ServedModel | None = None
        host = address.host
        authority = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
        root = command.arguments.root_path.rstrip("/")
        self._base = BaseUrl.of(f"http://{authority}:{address.port}{root}", api_key)
        self._health = BaseUrl.of(f"http://{authority}:{address.port}", api_key)

    async def observe(self, run: TuningRun, profile: ServingProfile) -> RunObservation:
        """What the run sees now. Nothing raises: what does not answer is seen so."""
        clone = await self._look_at_server()
        stage, metrics = await self._look_at_measurement(run, clone)
        return RunObservation(
            now=self._clock(),
            run=run,
            profile=profile,
            workload=self._workload(),
            clone=clone,
            clone_starts=() if self._server is None else (self._server.start,),
            agent=self._agent(),
            most_agents=1,
            stage=stage,
            clone_metrics=metrics,
            sources=self._sources.report() if run.status.step is RunStep.SOURCES and self._stages is not None else None,
            agent_exists=self._stages is not None,
        )

    async def perform(self, action: RunAction) -> None:
        """Do one action; doing it again changes nothing. Raises OSError."""
        match action:
            case EnsureAgent():
                if self._stages is None:
                    key = None if self._key is None else self._key.get_secret_value()
                    self._stages = Stages(key, self._sources)
            case DeleteAgent():
                await self._close_stages()
            case EnsureClone():
                await self._start_server(action)
            case DeleteClone():
                if self._server is not None and self._server.start == action.start:
                    await self._stop_server()
            case StartStage():
                if self._stages is not None:
                    # One that ran against an ended server is over in a moment; the next tick orders anew.
                    with contextlib.suppress(StageConflict):
                        self._stages.put(action.spec)
            case StoreSamples():
                await asyncio.to_thread(self._store, action.stage, action.samples)
            case ScaleWorkload() | EmitEvent():
                raise TypeError(f"{type(action).__name__} is for a cluster")

    async def wait_for_news(self, longest_s: float) -> bool:
        """Whether the stage in flight ended, or the server ended or became ready; waits for that at most so long."""
        end = asyncio.get_running_loop().time() + longest_s
        before = await self._news()
        while (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(_LOOK_EVERY_S, left))
            if await self._news() != before:
                return True
        return False

    @property
    def max_model_len(self) -> int | None:
        """The longest prompt and answer together, in tokens, as the server told it last; None where it did not."""
        return None if self._served is None else self._served.max_model_len

    def progress(self) -> StageStatus | None:
        """How the stage in flight stands; None when there is none."""
        running = self._stages.running if self._stages is not None else None
        return None if running is None else running.status()

    async def close(self) -> None:
        """End the load and the server."""
        await self._close_stages()
        await self._stop_server()

    async def _news(self) -> tuple[bool, bool, bool]:
        server = self._server
        if server is not None and not server.ready and server.process.exit_code is None:
            server.ready = await self._answers()
        ended = server is not None and server.process.exit_code is not None
        stages = self._stages
        return stages is not None and stages.running is not None, server is not None and server.ready, ended

    async def _answers(self) -> bool:
        """The server serves once both answer, as in a cluster its readiness probe and its models."""
        if not await is_healthy(self._http, self._health):
            return False
        try:
            models = await read_models(self._http, self._base)
        except ServerError:
            return False
        self._served = models[0]
        return True

    async def _look_at_server(self) -> PodView | None:
        server = self._server
        if server is None:
            return None
        code = server.process.exit_code
        if code is None and not server.ready:
            server.ready = await self._answers()
        return PodView(
            name=f"server-{server.start}",
            uid=f"{server.since.isoformat()}-{server.start}-{server.process.pid}",
            node="",
            ip=self._address.host,
            phase=PodPhase.RUNNING if code is None else PodPhase.FAILED,
            ready=server.ready and code is None,
            deleting=False,
            restarts=0,
            waiting_reason="",
            exit_code=code,
            unschedulable_message="",
            created_at=server.since,
            words=server.words,
            image_id="",
            log_tail="" if code is None else server.process.log_tail(),
        )

    async def _look_at_measurement(
        self, run: TuningRun, clone: PodView | None
    ) -> tuple[StageView | None, EngineMetrics | Unreachable | None]:
        """The stage while there is one, else the engine's gauges, as in a cluster."""
        current = run.status.current_stage
        if clone is None or not clone.ready:
            return None, None
        if current is not None:
            return self._look_at_stage(stage_id(current.name, clone.uid)), None
        try:
            return None, engine_metrics(await scrape(self._http, self._address.host, self._address.port))
        except (EngineUnreachable, MetricsMissing) as error:
            return None, Unreachable(str(error))

    def _look_at_stage(self, stage: str) -> StageView | None:
        if self._stages is None:
            return None
        try:
            status = self._stages.status(stage)
            running = status.state is StageState.RUNNING
            return StageView(status, None if running else self._stages.samples(stage))
        except UnknownStage:
            return StageView(None, None)

    def _workload(self) -> WorkloadView:
        """The command in the role of a workload with one replica, which nobody serves from."""
        return WorkloadView(
            kind="Command",
            name=self._command.container.name,
            namespace="",
            uid="",
            resource_version="",
            generation=0,
            observed_generation=0,
            replicas=1,
            updated_replicas=1,
            ready_replicas=1,
            total_replicas=1,
            progress_deadline_exceeded=False,
            owner=None,
            labels={},
            annotations={},
            containers=(self._command.container,),
            node_selector={},
            pod_template={},
        )

    def _agent(self) -> PodView | None:
        if self._stages is None:
            return None
        return PodView(
            name="agent",
            uid="agent",
            node="",
            ip="127.0.0.1",
            phase=PodPhase.RUNNING,
            ready=True,
            deleting=False,
            restarts=0,
            waiting_reason="",
            exit_code=None,
            unschedulable_message="",
            created_at=self._clock(),
            words=ContainerWords(),
            image_id="",
            log_tail="",
        )

    async def _start_server(self, wanted: EnsureClone) -> None:
        if self._server is not None and self._server.start == wanted.start:
            return
        if self._stages is not None and self._stages.running is not None:
            self._stages.running.cancel()
        await self._stop_server()
        words = (*self._command.words(wanted.words), *self._address.more_words)
        log = self._directory / f"server-{wanted.start}.log"
        process = await ServerProcess.start(words, log)
        self._server = _Server(wanted.start, process, self._clock(), wanted.words)

    async def _stop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.process.stop()

    async def _close_stages(self) -> None:
        if self._stages is not None:
            stages, self._stages = self._stages, None
            await stages.close()

    def _store(self, stage: str, samples: Samples) -> None:
        path = self._directory / f"{stage}.json.gz"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.write_bytes(gzip.compress(samples.model_dump_json().encode(), 3, mtime=0))
