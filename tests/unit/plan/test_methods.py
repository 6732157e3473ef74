"""Where a setting is written, when it is asked for by name, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.serving_profile import ServingProfileSpec, TargetRef, UpdateMethod
from kneekeeper.domain.observation import Owner, WorkloadView
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.writing import fields_with, may_write_for
from kneekeeper.domain.target import Target, resolve
from kneekeeper.domain.targets.fields import NotWritable
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template
from tests.unit.plan.world import PROFILE_SPEC, World

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
BY_NAME = {"mode": "Apply", "method": "Args", "verifyFor": "1m"}


@pytest.mark.parametrize("tool", ["Helm", "ArgoCD", "Flux"])
def test_what_a_tool_manages_is_written_only_by_a_method_that_is_named(tool):
    assert not may_write_for(Owner(tool, "chat"), UpdateMethod.AUTO)
    assert may_write_for(Owner(tool, "chat"), UpdateMethod.ARGS)


@pytest.mark.parametrize("method", list(UpdateMethod))
def test_what_a_controller_makes_is_never_written(method):
    assert not may_write_for(Owner("InferenceService", "chat"), method)
    assert may_write_for(None, method)


def test_writing_over_a_tool_is_warned_of_for_as_long_as_it_is_asked_for():
    world = World(spec=PROFILE_SPEC | {"updatePolicy": BY_NAME}, owner=Owner("Helm", "chat"))
    world.settle()
    assert [kind for kind, _ in world.writes] == ["words"]
    contested = find(world.profile.status.conditions, ConditionType.CONTESTED)
    assert contested is not None
    assert (contested.status, contested.reason) == ("True", "WritesOverHelm")
    assert "Helm chat" in contested.message
    world.owner = None
    world.run_for(600)
    after = find(world.profile.status.conditions, ConditionType.CONTESTED)
    assert after is not None
    assert after.status == "False"


def test_a_workload_of_a_controller_is_not_written_by_name_either():
    world = World(spec=PROFILE_SPEC | {"updatePolicy": BY_NAME}, owner=Owner("InferenceService", "chat"))
    world.settle()
    assert world.writes == []
    assert find(world.profile.status.conditions, ConditionType.CONTESTED) is None


def engine(args: list[str], env: list[dict[str, str]]) -> Target:
    made = template()
    made["spec"]["containers"][1] |= {"args": args, "env": env}
    found = resolve(parse_workload(deployment(made)), TargetRef(kind="Deployment", name="chat"))
    assert isinstance(found, Target)
    return found


def test_by_env_only_the_entries_of_the_variables_change():
    target = engine(
        ["m", "--max-num-seqs=$(N)", "--max-num-batched-tokens=$(T)"],
        [{"name": "N", "value": "16"}, {"name": "HF_HOME", "value": "/m"}, {"name": "T", "value": "2048"}],
    )
    changes = fields_with(target, SETTING, UpdateMethod.ENV)
    assert isinstance(changes, tuple)
    path = "/spec/template/spec/containers/1/env"
    assert [(c.path, c.before, c.after) for c in changes] == [
        (f"{path}/0", '{"name": "N", "value": "16"}', '{"name": "N", "value": "64"}'),
        (f"{path}/2", '{"name": "T", "value": "2048"}', '{"name": "T", "value": "4096"}'),
    ]
    assert fields_with(target, SETTING, UpdateMethod.ARGS) == ()


def test_by_env_nothing_is_written_where_words_hold_a_limit():
    target = engine(["m", "--max-num-seqs=$(N)"], [{"name": "N", "value": "16"}])
    found = fields_with(target, SETTING, UpdateMethod.ENV)
    assert isinstance(found, NotWritable)
    assert found.reason == "NoVariables"


@pytest.mark.parametrize(
    ("api_version", "kind", "method", "accepted"),
    [
        ("apps/v1", "Deployment", "Env", True),
        ("apps/v1", "Deployment", "Owner", False),
        ("apps/v1", "StatefulSet", "Args", True),
        ("serving.kserve.io/v1beta1", "InferenceService", "Owner", True),
        ("serving.kserve.io/v1beta1", "InferenceService", "Args", False),
        ("apps/v1", "Deployment", "ConfigMap", True),
        ("serving.kserve.io/v1beta1", "InferenceService", "ConfigMap", False),
        ("example.com/v1", "Server", "Auto", True),
        ("example.com/v1", "Server", "Args", False),
        ("batch/v1", "Job", "Auto", False),
    ],
)
def test_methods_that_a_kind_has_no_place_for_are_refused_by_name(api_version, kind, method, accepted):
    target = {"apiVersion": api_version, "kind": kind, "name": "chat"}
    spec = ServingProfileSpec.model_validate(PROFILE_SPEC | {"targetRef": target, "updatePolicy": {"method": method}})
    assert (spec_problem(spec) is None) is accepted


class Seen(World):
    """A world whose workload is seen with some of its fields replaced."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: dict[str, Any] = {}

    def workload(self) -> WorkloadView | None:
        view = super().workload()
        return view if view is None else replace(view, **self.seen)


def test_a_rollout_that_would_not_reach_every_pod_is_not_begun():
    world = Seen(spec=PROFILE_SPEC)
    world.seen = {"held_back": "its updateStrategy is OnDelete"}
    world.settle()
    assert world.writes == []
    found = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert found is not None
    assert found.reason == "RolloutHeldBack"
    assert "OnDelete" in found.message


def test_a_replica_of_several_pods_is_not_cloned():
    world = Seen(spec=PROFILE_SPEC)
    world.seen = {"kind": "LeaderWorkerSet", "pods_per_replica": 2}
    world.settle()
    assert world.last_run.status.cause == "GroupedReplica"
    assert world.clones == {}


@pytest.mark.parametrize("awaits", [True, False])
def test_a_canary_that_awaits_its_promotion_has_not_missed_its_progress(awaits):
    world = Seen(spec=PROFILE_SPEC)
    world.paused = True
    world.seen = {"awaits_promotion": awaits}
    world.run_until(lambda w: w.profile.status.rollout is not None)
    world.run_for(4 * 3600)
    assert bool(world.profile.status.rejected) is not awaits


@pytest.mark.parametrize(
    ("api_version", "kind", "why"),
    [
        ("ray.io/v1", "RayService", "Ray's own processes"),
        ("orchestration.aibrix.ai/v1alpha1", "StormService", "groups of roles"),
        ("serving.knative.dev/v1", "Service", "revisions"),
        ("batch/v1", "Job", "it acts on Deployment"),
    ],
)
def test_a_kind_that_is_not_measured_says_why_and_what_to_do_instead(api_version, kind, why):
    target = {"apiVersion": api_version, "kind": kind, "name": "chat"}
    problem = spec_problem(ServingProfileSpec.model_validate(PROFILE_SPEC | {"targetRef": target}))
    assert problem is not None
    assert problem.reason == "NotSupported"
    assert why in problem.message


def test_a_custom_kind_that_is_not_known_is_accepted_and_no_method_is_chosen_for_it():
    target = {"apiVersion": "example.com/v1", "kind": "Server", "name": "chat"}
    spec = PROFILE_SPEC | {"targetRef": target, "updatePolicy": {"mode": "Apply"}}
    assert spec_problem(ServingProfileSpec.model_validate(spec)) is None
    by_name = spec | {"updatePolicy": {"mode": "Apply", "method": "Owner"}}
    problem = spec_problem(ServingProfileSpec.model_validate(by_name))
    assert problem is not None
    assert "spec.updatePolicy.method Owner of a Server" in problem.message
