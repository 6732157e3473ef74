"""A workload that a controller makes of another object: only that object's fields are written, and put back."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kneekeeper.domain import actions as act
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.observation import PodView, WorkloadView
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.targets import Objects
from kneekeeper.domain.targets.fields import json_patch
from kneekeeper.domain.targets.recognition import recognised_pods, recognised_workload
from tests.unit.plan.world import PROFILE_SPEC, World

RUNTIME: dict[str, Any] = {
    "apiVersion": "production-stack.vllm.ai/v1alpha1",
    "kind": "VLLMRuntime",
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {
        "model": {"modelURL": "tiny", "maxNumSeqs": 4},
        "vllmConfig": {"extraArgs": ["--max-num-batched-tokens=2048"]},
    },
}
SPEC = PROFILE_SPEC | {"targetRef": {"apiVersion": RUNTIME["apiVersion"], "kind": "VLLMRuntime", "name": "chat"}}
CONTROLLER_S = 25.0
"""Longer than the plan waits for words to be written."""


class MadeWorld(World):
    """The controller makes words of the runtime in an order of its own, some time after a write."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runtime = copy.deepcopy(RUNTIME)
        self.made_at: datetime | None = None
        self.patches: list[list[dict[str, Any]]] = []

    def workload(self) -> WorkloadView | None:
        if self.made_at is not None and self.now >= self.made_at:
            self.made_at = None
            model, extra = self.runtime["spec"]["model"], self.runtime["spec"]["vllmConfig"]["extraArgs"]
            self.set_args(["serve", "--max-num-seqs", str(model["maxNumSeqs"]), "tiny", *extra], writer="controller")
        view = super().workload()
        if view is None:
            return None
        view = replace(
            view,
            generation=1,
            observed_generation=1,
            source=self.source,
            made_by_controller=True,
            resource="vllmruntimes.example.com",
        )
        return recognised_workload(view, self.profile.status)

    @property
    def source(self) -> Objects:
        return Objects((ManifestObject(0, (), self.runtime),))

    def pods(self) -> tuple[PodView, ...]:
        view = self.workload()
        assert view is not None
        return recognised_pods(super().pods(), view, self.profile.status)

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        if not isinstance(action, act.WriteWords):
            super().perform(action, run)
            return
        assert action.fields, "the words themselves are the controller's"
        patch = json_patch(self.runtime, action.fields)
        if patch:
            self.patches.append(patch)
            self.patch(patch)
            self.made_at = self.now + timedelta(seconds=CONTROLLER_S)

    def patch(self, operations: list[dict[str, Any]]) -> None:
        for operation in operations:
            *parents, last = operation["path"].split("/")[1:]
            place = self.runtime
            for step in parents:
                place = place[step]
            if operation["op"] == "test":
                assert place.get(last) == operation["value"]
            elif operation["op"] == "remove":
                del place[last]
            else:
                place[last] = operation["value"]


def test_the_fields_are_written_once_and_the_controllers_words_are_known_again():
    world = MadeWorld(spec=SPEC)
    world.settle()
    applied = world.profile.status.applied
    assert applied is not None
    assert len(world.patches) == 1
    spec = world.runtime["spec"]
    assert spec["model"]["maxNumSeqs"] == applied.setting.max_num_seqs
    assert spec["vllmConfig"]["extraArgs"] == [f"--max-num-batched-tokens={applied.setting.max_num_batched_tokens}"]
    condition = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert condition is not None
    assert condition.status == "True"
    world.run_for(7200)
    assert len(world.patches) == 1


def test_a_setting_that_crashes_is_taken_back_to_the_very_fields():
    world = MadeWorld(spec=SPEC)
    world.run_until(lambda w: w.profile.status.rollout is not None)
    world.run_for(CONTROLLER_S + 5)
    world.crashing_rollouts, world.writer = True, "kneekeeper"
    world.run_until(lambda w: bool(w.profile.status.rejected))
    assert world.runtime == RUNTIME


def test_a_profile_that_is_deleted_restores_the_fields():
    world = MadeWorld(spec=SPEC | {"deletionPolicy": "Restore"})
    world.settle()
    assert world.runtime != RUNTIME
    world.profile_deleting = True
    for _ in range(30):
        world.tick()
        world.now += timedelta(seconds=2)
    assert world.runtime == RUNTIME


def test_fields_that_others_change_meanwhile_stand():
    world = MadeWorld(spec=SPEC)
    world.run_until(lambda w: w.profile.status.rollout is not None)
    world.runtime["spec"]["model"]["maxNumSeqs"] = 3
    world.made_at = world.now
    world.settle()
    assert world.runtime["spec"]["model"]["maxNumSeqs"] == 3
    assert len(world.patches) == 1


def test_no_replica_of_a_controllers_is_borrowed():
    world = MadeWorld(spec=SPEC | {"probe": {"allow": ["BorrowReplica"]}}, spare_gpus=0)
    world.run_for(60)
    assert world.last_run.status.waiting_for == "OwnedReplicas"


def test_what_is_stored_of_a_write_is_the_value_that_stood_there():
    world = MadeWorld(spec=SPEC)
    world.run_until(lambda w: w.profile.status.rollout is not None)
    rollout = world.profile.status.rollout
    assert rollout is not None
    assert [(f.path, json.loads(f.before or "null")) for f in rollout.fields] == [
        ("/spec/model/maxNumSeqs", 4),
        ("/spec/vllmConfig/extraArgs", ["--max-num-batched-tokens=2048"]),
    ]


SERVER: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Server",
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {"pod": {"containers": [{"name": "vllm", "command": ["vllm"], "args": ["serve", "tiny"]}]}},
}


class UnknownWorld(World):
    """A controller of a kind of which nothing is known."""

    def workload(self) -> WorkloadView | None:
        view, source = super().workload(), Objects((ManifestObject(0, (), SERVER),))
        if view is None:
            return None
        return replace(view, kind="Server", resource="servers.example.com", source=source, made_by_controller=True)


def test_for_a_kind_that_is_not_known_the_change_is_told_and_nothing_is_written():
    target = {"apiVersion": SERVER["apiVersion"], "kind": "Server", "name": "chat"}
    world = UnknownWorld(spec=PROFILE_SPEC | {"targetRef": target})
    world.settle()
    recommendation = world.profile.status.recommendation
    assert recommendation is not None
    assert recommendation.patch.startswith("kubectl -n prod patch servers.example.com chat --type=json -p ")
    assert f"--max-num-seqs={recommendation.setting.max_num_seqs}" in recommendation.patch
    assert "kind: Server" in recommendation.kustomize
    assert world.writes == []
    applied = find(world.profile.status.conditions, ConditionType.APPLIED)
    assert applied is not None
    assert (applied.status, applied.reason) == ("False", "UnknownKind")
