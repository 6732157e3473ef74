"""A world whose production is switched live at set hours, and how tests look at it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.domain.live_delivery import delivery_in
from kneekeeper.domain.observation import Unreachable
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.target import Target, resolve
from tests.unit.plan.live_world import LIVE_SPEC, LiveWorld
from tests.unit.plan.test_schedules import MORNING, HourlyWorld
from tests.unit.plan.world import Effect

CEILING = Setting(max_num_seqs=32, max_num_batched_tokens=2048)
SILENT = Unreachable("the live-tuning plugin does not answer: ConnectError")


@dataclass
class HourlyLive(HourlyWorld, LiveWorld):
    """Each run knows its entry's best setting, certified as its plan asks for."""

    spec: dict[str, Any] = field(default_factory=lambda: LIVE_SPEC | {"schedules": [MORNING]})
    certified_live: bool = True

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        before = self.runs[name].status.certifications
        wait_s = super().tick_run(name, crash_after)
        run = self.runs.get(name)
        if (
            self.certified_live
            and run is not None
            and run.status.certifications
            and not before
            and run.status.plan is not None
        ):
            live = [c.with_changes(started_with=run.status.plan.live_start) for c in run.status.certifications]
            self.runs[name] = run.with_changes(status=run.status.with_changes(certifications=live))
        return wait_s


def two_mixes(**spec: Any) -> HourlyLive:
    """Before the first morning, with both questions answered and the profile's own setting in force."""
    return _two_mixes(json.dumps(spec, sort_keys=True)).forked()


@functools.cache
def _two_mixes(spec: str) -> HourlyLive:
    world = HourlyLive(spec=LIVE_SPEC | {"schedules": [MORNING]} | json.loads(spec))
    world.run_for(900)
    return world


def present(world: LiveWorld) -> Setting:
    """What is in force as the operator sees it."""
    view = world.workload()
    assert view is not None
    target = resolve(view, world.profile.spec.target_ref, "")
    assert isinstance(target, Target)
    return target.present


def told(world: LiveWorld, type_: ConditionType = ConditionType.LIVE_CHANGES) -> tuple[ConditionStatus, str]:
    condition = find(world.profile.status.conditions, type_)
    assert condition is not None
    return condition.status, condition.reason


def is_delivered(world: LiveWorld) -> bool:
    return delivery_in(world.template["spec"]) is not None


def started(world: LiveWorld) -> list[str]:
    return list(world.engine["args"])[-2:]
