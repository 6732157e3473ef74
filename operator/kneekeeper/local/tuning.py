"""The run: look, decide, store, act, again and again, as the operator's ticks do it for a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from kneekeeper.api.stage import StageStatus
from kneekeeper.api.tuning_run import RunStep, TuningRun, TuningRunStatus
from kneekeeper.domain.plan.run import decide
from kneekeeper.local.place import LocalPlace
from kneekeeper.local.state import TuneState, store

SHOW_EVERY_S = 0.5


class Audience(Protocol):
    """Who is told how the run stands."""

    def show(self, status: TuningRunStatus, progress: StageStatus | None) -> None:
        """Called often; `progress` is the stage in flight."""


async def tune(
    state: TuneState, place: LocalPlace, directory: Path, audience: Audience, clock: Callable[[], datetime]
) -> TuneState:
    """Bring the run to its end and return its last state. Cancelled, it leaves the last decided one in `directory`.

    The caller closes `place`. Raises OSError where evidence or state cannot be written.
    """
    begun_s, elapsed_before_s = time.monotonic(), state.elapsed
    while True:
        observation = await place.observe(state.run(), state.serving_profile())
        observation = replace(observation, run=_with_served_length(observation.run, place.max_model_len))
        # Fits take a while; a Ctrl-C is heard meanwhile.
        decision = await asyncio.to_thread(decide, observation)
        for evidence in decision.evidence:
            await place.perform(evidence)
        elapsed_s = elapsed_before_s + time.monotonic() - begun_s
        state = state.with_changes(status=decision.status, elapsed=elapsed_s)
        store(directory, state)
        audience.show(state.status, place.progress())
        if state.status.step is RunStep.DONE:
            return state
        for action in decision.actions:
            await place.perform(action)
        if state.status.step is not RunStep.CLEAN_UP:
            await _wait(place, state.status, decision.next_tick_s, audience)


def _with_served_length(run: TuningRun, max_model_len: int | None) -> TuningRun:
    """Where the command does not say how long a sequence may be, the server does: longer ones would be refused."""
    plan = run.status.plan
    if plan is None or plan.max_model_len is not None or max_model_len is None:
        return run
    return run.with_changes(status=run.status.with_changes(plan=plan.with_changes(max_model_len=max_model_len)))


async def _wait(place: LocalPlace, status: TuningRunStatus, longest_s: float, audience: Audience) -> None:
    """Until something has happened; whoever watches sees the stage in flight move meanwhile."""
    end = time.monotonic() + longest_s
    while (left := end - time.monotonic()) > 0:
        if await place.wait_for_news(min(SHOW_EVERY_S, left)):
            return
        audience.show(status, place.progress())
