"""A workload that is broken before anything of ours touched it: the cause is told, and goes when it is mended."""

from __future__ import annotations

from dataclasses import replace

from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import World

LOG = "ERROR: VLLM_PORT 'tcp://10.96.0.9:80' appears to be a URI. This may be caused by a Kubernetes service"


def test_the_cause_of_a_crash_loop_is_told_and_forgotten_when_it_is_over():
    world = World()
    seen = world.observe_profile()
    assert seen.pods is not None
    broken = replace(seen.pods[0], restarts=4, ready=False, log_tail=LOG)
    decision = profile_plan.decide(replace(seen, pods=(broken, *seen.pods[1:])))
    told = find(decision.status.conditions, ConditionType.DEGRADED)
    assert told is not None
    assert (told.status, told.reason) == ("True", "ServicePortEnv")
    assert "enableServiceLinks" in told.message
    mended = replace(seen, profile=seen.profile.with_changes(status=decision.status))
    after = find(profile_plan.decide(mended).status.conditions, ConditionType.DEGRADED)
    assert after is not None
    assert after.status == "False"
