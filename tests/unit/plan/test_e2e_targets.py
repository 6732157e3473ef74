"""A target on the time of whole requests, from the profile to what is certified and told."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, StageKind, Verdict
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.views.fleet import row_of
from tests.unit.plan.world import PROFILE_SPEC, World

WHOLE: dict[str, Any] = {"slo": {"p99E2E": "2s"}}


def test_a_target_on_whole_requests_alone_is_certified_and_told():
    world = World(spec=PROFILE_SPEC | WHOLE)
    world.settle()
    status, recommendation = world.last_run.status, world.profile.status.recommendation
    assert status.outcome in (RunOutcome.CERTIFIED, RunOutcome.NO_IMPROVEMENT), status.message
    assert status.certifications[-1].verdict is Verdict.PASS
    certified = next(s for s in status.stages if s.kind is StageKind.CERTIFY)
    assert certified.p99_e2e is not None
    assert certified.p99_e2e <= 2.0
    assert all(spec.slo.e2e_s == 2.0 for spec in world.ordered if spec.id.startswith("certify"))
    assert recommendation is not None
    assert recommendation.p99_e2e == certified.p99_e2e
    assert row_of(world.profile).slo.p99_e2e_ms == 2000


def test_a_target_on_whole_requests_that_nothing_meets_is_impossible():
    world = World(spec=PROFILE_SPEC | {"slo": {"p99E2E": "100ms"}})
    world.settle()
    assert world.last_run.status.outcome is RunOutcome.IMPOSSIBLE_SLO
    assert "p99E2E" in world.last_run.status.message


@pytest.mark.parametrize("of_class", [{}, {"slo": {"p99E2E": "3s"}}])
def test_a_class_may_have_a_target_on_its_whole_requests(of_class: dict[str, Any]):
    lengths = {name: PROFILE_SPEC["workload"][name] for name in ("promptTokens", "outputTokens")}
    workload = {"classes": [{"name": "chat", "weightPercent": 100, **lengths, **of_class}]}
    assert spec_problem(ServingProfileSpec.model_validate(PROFILE_SPEC | WHOLE | {"workload": workload})) is None
