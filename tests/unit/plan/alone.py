"""A world with a single replica, which may be measured in place, and a run that does it."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

from kneekeeper.api.tuning_run import RunStep
from tests.unit.plan.world import PROFILE_SPEC, World, at_step

WINDOW = {"schedule": "0 0 * * *", "duration": "6h"}
"""Opens at the world's start."""
PROBE: dict[str, Any] = {"allow": ["InPlace"], "window": WINDOW}
SPEC = PROFILE_SPEC | {"probe": PROBE}
ALONE: dict[str, Any] = {"spec": SPEC, "spare_gpus": 0, "replicas": 1, "replicas_at_start": 1}
MEASURING = [RunStep.CEILING, RunStep.RAMP, RunStep.BASELINE]


def alone(**values: Any) -> World:
    """One replica and no spare GPU."""
    return World(**(ALONE | values))


def measuring(step: RunStep) -> World:
    """A run in place at this step; where the choice is the present setting there would be no Baseline."""
    return _at_baseline().forked() if step == RunStep.BASELINE else at_step(step, **ALONE)


@functools.cache
def _at_baseline() -> World:
    world = at_step(RunStep.RAMP, **ALONE)
    world.run_until_step(RunStep.BASELINE)
    return world


@functools.cache
def _predicted() -> World:
    world = measuring(RunStep.BASELINE)
    world.slow = "baseline"
    return finish(world)


def predicted() -> World:
    """A run has ended whose present setting broke the SLO at what another one should carry."""
    return _predicted().forked()


def finish(world: World, limit_s: float = 7200) -> World:
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE, limit_s)
    assert untouched(world)
    assert world.agent_since is None
    return world


def untouched(world: World) -> bool:
    """Nothing was written, no pod of an engine was made, and no GPU was held."""
    made = [child for child in world.created if "/clone-" in child]
    status = world.last_run.status
    return world.writes == [] and made == [] and status.cost.engine_starts == 0 and status.cost.gpu_seconds == 0


def goes_on(world: World) -> bool:
    """Whether further stages are decided, and count."""
    before = len(world.last_run.status.stages)
    world.run_for(120)
    return any(stage.verdict is None for stage in world.last_run.status.stages[before:])


def under_load(name: str = "ramp-1-") -> World:
    """In the middle of a stage."""
    world = measuring(RunStep.RAMP)
    world.run_until(lambda w: w.stage is not None and w.stage.id.startswith(name))
    world.stage_ends = world.now + timedelta(seconds=10)
    return world
