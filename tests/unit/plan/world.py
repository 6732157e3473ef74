"""The world in which the state machines run: the small cluster, and an operator that ticks and may be killed.

`crash_after` drops everything behind the given effect of a tick, as a killed operator would.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from enum import IntEnum
from typing import Any

from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan import run as run_plan
from tests.unit.plan.circumstances import PROFILE_SPEC, START, STARTUP_S
from tests.unit.plan.cluster import Cluster

__all__ = ["PROFILE_SPEC", "START", "Effect", "World", "at_step", "settled"]


class Effect(IntEnum):
    """The order in which a tick takes effect."""

    EVIDENCE = 1
    STATUS = 2
    ACTIONS = 3


class World(Cluster):
    """Everything outside the operator, and the operator's ticks."""

    def tick_profile(self, crash_after: Effect | None = None) -> float:
        decision = profile_plan.decide(self.observe_profile())
        self.profile = self.profile.with_changes(status=decision.status)
        if crash_after is None:
            for action in decision.actions:
                self.perform(action)
        return decision.next_tick_s

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        run = self.runs[name]
        decision = run_plan.decide(self.observe_run(run))
        for evidence in decision.evidence:
            self.perform(evidence, name)
        if crash_after == Effect.EVIDENCE:
            return 0.0
        self.runs[name] = run.with_changes(status=decision.status)
        if crash_after is None:
            for action in decision.actions:
                self.perform(action, name)
        if decision.release and "deletionTimestamp" in run.metadata:
            del self.runs[name]
        return decision.next_tick_s

    def tick(self, crash_after: Effect | None = None) -> float:
        """One tick of everything; returns when the next one is asked for."""
        waits = [self.tick_profile(crash_after)]
        waits += [self.tick_run(name, crash_after) for name in list(self.runs)]
        return min(waits)

    def run_for(self, seconds: float) -> None:
        """Tick as asked until this much time has passed."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=max(0.5, min(self.tick(), (end - self.now).total_seconds())))

    def settle(self, limit_s: float = 7200.0) -> None:
        """Tick until no run and no rollout is under way. Fails when that takes longer than `limit_s`."""
        end = self.now + timedelta(seconds=limit_s)
        while self.now < end:
            wait = self.tick()
            busy = self.profile.status.rollout or any(r.status.step != RunStep.DONE for r in self.runs.values())
            if not busy:
                self.tick()
                if self.profile.status.rollout is None and not self.profile.status.active_run:
                    return
            self._pass(wait)
        told = [run.status.message for run in self.runs.values()]
        raise AssertionError(f"not settled: {self.profile.status.stage}, {told}")

    def _pass(self, wait_s: float) -> None:
        """As long as the plan asks for, or until something happens of which the world knows when it will."""
        known = [clone.created + timedelta(seconds=STARTUP_S) for clone in self.clones.values()]
        known += [self.stage_ends] if self.stage is not None else []
        known += [self.now + timedelta(seconds=30)] if self._hangs else []
        ahead = [moment for moment in known if moment > self.now]
        until = max((min(ahead) - self.now).total_seconds(), wait_s) if ahead else wait_s
        self.now += timedelta(seconds=min(max(0.5, until), 30.0))

    def run_until(self, seen: Callable[[World], bool], limit_s: float = 7200.0) -> None:
        """Tick as asked until something is seen. Fails when that takes longer than `limit_s`."""
        end = self.now + timedelta(seconds=limit_s)
        while not seen(self):
            assert self.now < end, f"not seen: {self.profile.status.stage}, {[r.status for r in self.runs.values()]}"
            self._pass(self.tick())

    def run_until_step(self, step: RunStep) -> None:
        """Tick until the newest run is at this step, with a clone if it has one in that step."""
        self.run_until(lambda world: bool(world.runs) and world.last_run.status.step == step)

    def forked(self) -> World:
        """A world that goes on from here by itself; what is stored is frozen and therefore shared."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list)):
                setattr(other, name, copy.copy(value))
        other.clones = {start: replace(clone) for start, clone in self.clones.items()}
        return other

    @property
    def created_runs(self) -> list[str]:
        return [name for name in self.created if "/" not in name]

    @property
    def last_run(self) -> TuningRun:
        return list(self.runs.values())[-1]


def at_step(step: RunStep, **world: Any) -> World:
    """A world made with these values whose first run is at this step; a run at Sources has prompts to read."""
    values: dict[str, Any] = {"spec": PROFILE_SPEC, "spare_gpus": 1} | world
    if step == RunStep.SOURCES:
        workload = {**values["spec"]["workload"], "prompts": {"configMapRef": {"name": "prompts"}}}
        values["spec"] = {**values["spec"], "workload": workload}
    return _at_step(step, json.dumps(values, sort_keys=True)).forked()


_IN_ORDER = (RunStep.CEILING, RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE)


@functools.cache
def _at_step(step: RunStep, values: str) -> World:
    before = _IN_ORDER.index(step) - 1 if step in _IN_ORDER else -1
    world = _at_step(_IN_ORDER[before], values).forked() if before >= 0 else World(**json.loads(values))
    world.run_until_step(step)
    return world


_NOT_MEASURED = ("updatePolicy", "deletionPolicy", "retune", "runHistoryLimit")


def settled(**spec: Any) -> World:
    """A world whose profile, with these parts of the spec, has had its run and its rollout."""
    return _settled(json.dumps(spec, sort_keys=True)).forked()


@functools.cache
def _settled(parts: str) -> World:
    spec = json.loads(parts)
    measured = {name: part for name, part in spec.items() if name not in _NOT_MEASURED}
    world = at_step(RunStep.BASELINE, spec=PROFILE_SPEC | measured)
    world.profile = world.profile.with_changes(spec=ServingProfileSpec.model_validate(PROFILE_SPEC | spec))
    world.settle()
    return world
