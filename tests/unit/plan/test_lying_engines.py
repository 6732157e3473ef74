"""An engine under test whose metrics say what is not so: what is certified is what the client saw, or nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import RunOutcome, StageKind, Verdict
from kneekeeper.domain.observation import EngineMetrics
from tests.unit.plan.world import World, settled

MUCH = 2**53

LIES: dict[str, dict[str, Any]] = {
    "is never idle": {"running": 1000, "waiting": 1000, "kv_cache_usage": 1.0},
    "has no room at all": {"kv_cache_tokens": 0},
    "has room for one request": {"kv_cache_tokens": 700},
    "has room for everything": {"kv_cache_tokens": MUCH},
    "counts what nobody can count": {"generation_tokens_total": float(MUCH), "preemptions_total": float(MUCH)},
    "hits more than was asked for": {"prefix_cache_hits_total": float(MUCH)},
}


class LyingWorld(World):
    """Its clones tell of themselves what `lie` holds; all else is as it is."""

    lie: Mapping[str, Any]

    def _clone_metrics(self) -> EngineMetrics:
        return replace(super()._clone_metrics(), **self.lie)


class RestartingWorld(World):
    """Its clones count from zero again at every look, as a server does whose supervisor starts it anew."""

    looks = 0

    def _clone_metrics(self) -> EngineMetrics:
        self.looks += 1
        return replace(super()._clone_metrics(), generation_tokens_total=float(MUCH - self.looks))


@cache
def truth() -> Setting:
    recommendation = settled().profile.status.recommendation
    assert recommendation is not None
    return recommendation.setting


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_changes_no_verdict_of_what_the_client_saw(lie: dict[str, Any]):
    world = LyingWorld()
    world.lie = lie
    world.settle(limit_s=24 * 3600.0)
    status = world.last_run.status
    assert status.cause != "InternalError", status.message
    if status.outcome != RunOutcome.CERTIFIED:
        assert world.writes == []
        return
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    passed = [c.setting for c in status.certifications if c.verdict is Verdict.PASS]
    assert recommendation.setting in passed
    assert recommendation.setting.max_num_seqs <= truth().max_num_seqs


def test_a_stage_in_which_the_engine_began_anew_says_nothing():
    world = RestartingWorld()
    world.settle(limit_s=24 * 3600.0)
    status = world.last_run.status
    assert status.outcome == RunOutcome.INCONCLUSIVE
    control = next(stage for stage in status.stages if stage.kind is StageKind.CONTROL)
    assert control.verdict is Verdict.INVALID
    assert "began anew" in control.message
    assert world.writes == []
