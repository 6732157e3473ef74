"""The stages an agent knows: one runs at a time, and ordering one twice starts it once."""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from kneekeeper.api.stage import Samples, StageSpec, StageStatus
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

    def __init__(self, api_key: str | None = None, sources: Sources | None = None) -> None:
        self._api_key = api_key
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

        Raises StageConflict when its id stands for another spec, or another stage runs.
        """
        known = self._specs.get(spec.id)
        if known is not None:
            if known != spec:
                raise StageConflict(f"stage {spec.id} was started with another spec; use a new id")
            return Started.BEFORE
        if (running := self.running) is not None:
            message = f"stage {running.spec.id} is running; delete it or wait for its end"
            raise StageConflict(message, running.spec.id)
        while len(self._runners) >= KEPT_STAGES:
            del self._runners[next(iter(self._runners))]
        runner = StageRunner(spec, self._api_key, self.sources)
        self._specs[spec.id] = spec
        self._runners[spec.id] = runner
        self._task = asyncio.create_task(runner.run())
        return Started.NOW

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
