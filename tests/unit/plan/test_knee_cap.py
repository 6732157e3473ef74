"""A knee of the profile's own elasticity, as a hard cap of what is chosen."""

from __future__ import annotations

from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.domain.plan.acceptance import spec_problem
from tests.unit.plan.world import PROFILE_SPEC, World, settled

PARAMETERS = PROFILE_SPEC["parameters"] | {"kneeElasticityPercent": 70}


def test_a_choice_stays_at_or_below_the_knee_that_the_profile_asks_for():
    free = settled().last_run.status
    world = World(spec=PROFILE_SPEC | {"parameters": PARAMETERS})
    world.settle()
    status = world.last_run.status
    assert status.fit is not None
    assert status.fit.knee is not None
    choice = status.choices[0]
    assert choice.setting.max_num_seqs <= status.fit.knee.concurrency
    assert choice.setting.max_num_seqs < free.choices[0].setting.max_num_seqs
    assert choice.bound_by is BoundBy.KNEE
    assert "elasticity 0.7" in choice.message


def test_a_knee_cannot_be_a_cap_where_no_ramp_is_allowed():
    spec = ServingProfileSpec.model_validate(PROFILE_SPEC | {"parameters": PARAMETERS, "probe": {"allow": ["Passive"]}})
    problem = spec_problem(spec)
    assert problem is not None
    assert "kneeElasticityPercent" in problem.message
