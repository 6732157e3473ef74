"""An availability that is promised, from the profile to what is certified and told."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.cli.show.status import targets
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.requests import slos_of
from kneekeeper.domain.views.fleet import targets_of
from tests.unit.plan.world import PROFILE_SPEC, settled

SLO: dict[str, Any] = PROFILE_SPEC["slo"] | {"availabilityPercent": 99}


@pytest.mark.parametrize("of_batch", [{"slo": SLO}, {"slo": {"availabilityPercent": 99}, "objective": "Throughput"}])
def test_a_promised_availability_is_certified_with_the_rest(of_batch: dict[str, Any]):
    world = settled(**of_batch)
    status = world.last_run.status
    assert status.outcome is RunOutcome.CERTIFIED, status.message
    assert all(spec.slo.availability == 0.99 for spec in world.ordered)
    proven = [spec for spec in world.ordered if spec.id.startswith("certify")]
    assert proven
    assert status.certifications[-1].misses == 0


def test_a_class_may_promise_its_own_availability():
    lengths = {name: PROFILE_SPEC["workload"][name] for name in ("promptTokens", "outputTokens")}
    kinds = [
        {"name": "chat", "weightPercent": 60, **lengths, "slo": {"p99TTFT": "1s", "availabilityPercent": 98}},
        {"name": "batch", "weightPercent": 40, **lengths},
    ]
    spec = ServingProfileSpec.model_validate(PROFILE_SPEC | {"slo": SLO, "workload": {"classes": kinds}})
    assert spec_problem(spec) is None
    assert [slo.availability for slo in slos_of(spec)] == [0.98, 0.99]


def test_a_promised_availability_is_shown_beside_the_targets():
    spec = ServingProfileSpec.model_validate(PROFILE_SPEC | {"slo": SLO})
    assert targets(targets_of(spec.slo)) == "TTFT 2s, TPOT 25ms, availability 99%"
