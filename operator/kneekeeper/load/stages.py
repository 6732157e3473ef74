"""The stages an agent knows: one runs at a time, and ordering one twice starts it once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum, auto

from kneekeeper.api.stage import Helpers, Samples, ShareOrder, StageSpec, StageStatus
from kneekeeper.load.crew import Team
from kneekeeper.load.helper import PROTOCOL, hand_on, start_share
from kneekeeper.load.http_server import Upgrade
from kneekeeper.load.sources import Sources
from kneekeeper.load.stage_runner import StageRunner

KEPT_STAGES = 8
"""Samples are fetched right after a stage; older ones are dropped, so that the agent's memory has a bound."""


class StageConflict(Exception):
    """The stage cannot be started now. The message says what is in its way; `running` is the stage that runs, if
    that is what it is."""

    def __init__(self, message: str, running: str | None = None) -> None:
        super().__init__(message)
        self.running = running


class UnknownStage(LookupError):
    """The agent does not know the stage, or not any more. Start it, or look at a newer one."""


class StillRunning(Exception):
    """Samples are complete once a stage has ended. Ask for its status until then."""


class Started(Enum):
    """What ordering a stage did."""

    NOW = auto()
    BEFORE = auto()


class Stages:
    """Starts, keeps and forgets stages. Needs a running event loop."""

    def __init__(self, api_key: str | None = None, sources: Sources | None = None, token: str = "") -> None:
        """`token` opens the helpers of stages of several agents, as it opens this one."""
        self._api_key = api_key
        self._team = Team(token)
        self._shares = 0
        self.sources = sources if sources is not None else Sources()
        self._runners: dict[str, StageRunner] = {}
        self._specs: dict[str, StageSpec] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> StageRunner | None:
        """The stage that runs now."""
        return next((runner for runner in self._runners.values() if not runner.over), None)

    def put(self, spec: StageSpec) -> Started:
        """Start a stage, unless the same one was started before, even if its samples have been dropped since.

        Raises StageConflict when its id stands for another spec, another stage runs, or helpers are missing.
        """
        known = self._specs.get(spec.id)
        if known is not None:
            if known != spec:
                raise StageConflict(f"stage {spec.id} was started with another spec; use a new id")
            return Started.BEFORE
        if (running := self.running) is not None:
            message = f"stage {running.spec.id} is running; delete it or wait for its end"
            raise StageConflict(message, running.spec.id)
        if self._shares:
            raise StageConflict("this agent sends a share of another agent's stage; wait for its end")
        if (missing := spec.agents - 1 - len(self._team.addresses)) > 0:
            raise StageConflict(f"the stage is for {spec.agents} agents; name {missing} more helpers")
        while len(self._runners) >= KEPT_STAGES:
            del self._runners[next(iter(self._runners))]
        runner = StageRunner(spec, self._api_key, self.sources, self._team)
        self._specs[spec.id] = spec
        self._runners[spec.id] = runner
        self._task = asyncio.create_task(runner.run())
        return Started.NOW

    def name_helpers(self, helpers: Helpers) -> None:
        """From the next stage on these agents send beside this one."""
        self._team = replace(self._team, addresses=helpers.addresses)

    async def share(self, order: ShareOrder) -> Upgrade:
        """Start a share of another agent's stage; it ends with the connection that goes on with the answer.

        Raises StageConflict when a stage or another share runs, SourceError, TraceMissing and OSError.
        """
        if self.running is not None or self._shares:
            raise StageConflict("this agent is at work already; wait for its end")
        self._shares += 1
        try:
            worker = await start_share(order, self._api_key, self.sources)
        except BaseException:
            self._shares -= 1
            raise

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await hand_on(worker, reader, writer)
            finally:
                self._shares -= 1

        return Upgrade(PROTOCOL, serve)

    def status(self, stage_id: str) -> StageStatus:
        """How a stage stands. Raises UnknownStage."""
        return self._runner(stage_id).status()

    def samples(self, stage_id: str) -> Samples:
        """The rows of an ended stage. Raises UnknownStage, StillRunning."""
        runner = self._runner(stage_id)
        if not runner.over:
            raise StillRunning(f"stage {stage_id} is still running; its samples are complete when it has ended")
        return runner.samples()

    def cancel(self, stage_id: str) -> None:
        """End a stage; one that is over stays as it is. Raises UnknownStage."""
        self._runner(stage_id).cancel()

    async def close(self) -> None:
        """Cancel what runs and wait until its worker is gone."""
        if self._task is None:
            return
        for runner in self._runners.values():
            runner.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _runner(self, stage_id: str) -> StageRunner:
        runner = self._runners.get(stage_id)
        if runner is None:
            raise UnknownStage(f"stage {stage_id} is not known to this agent")
        return runner
