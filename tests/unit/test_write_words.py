"""Writes of words into every kind that has a pod template of its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kneekeeper.actuate.workload import write_words
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.actions import WriteWords
from kneekeeper.kube.resources import Kind, Resource
from kneekeeper.kube.targets import UnsupportedTarget
from tests.unit.kube_objects import deployment, template

BEFORE = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=256"])
AFTER = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=64"])


class OneObject:
    """Answers with one object, and remembers the patches of it."""

    def __init__(self, found: Resource) -> None:
        self._found = found
        self.patched: list[tuple[str, list[dict[str, Any]]]] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        return deepcopy(self._found)

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: list[dict[str, Any]]) -> Resource:
        self.patched.append((f"{kind.api_version}/{kind.plural}", patch))
        return self._found


async def written(api_version: str, kind: str, found: Resource, before: ContainerWords = BEFORE) -> OneObject:
    fake = OneObject(found)
    kube: Any = fake
    target = TargetRef(api_version=api_version, kind=kind, name="chat")
    await write_words(kube, "prod", target, WriteWords("vllm", before, AFTER))
    return fake


@pytest.mark.parametrize(
    ("api_version", "kind", "resource"),
    [
        ("apps/v1", "StatefulSet", "apps/v1/statefulsets"),
        ("argoproj.io/v1alpha1", "Rollout", "argoproj.io/v1alpha1/rollouts"),
    ],
)
async def test_only_the_words_change_and_only_where_they_stand_as_read(api_version, kind, resource):
    [(where, patch)] = (await written(api_version, kind, deployment())).patched
    assert where == resource
    path = "/spec/template/spec/containers/1"
    assert patch == [
        {"op": "test", "path": f"{path}/name", "value": "vllm"},
        {"op": "test", "path": f"{path}/command", "value": BEFORE.command},
        {"op": "test", "path": f"{path}/args", "value": BEFORE.args},
        {"op": "add", "path": f"{path}/args", "value": AFTER.args},
    ]


async def test_the_leader_of_a_group_is_written():
    found = {"metadata": {"name": "chat"}, "spec": {"leaderWorkerTemplate": {"leaderTemplate": template()}}}
    [(_, patch)] = (await written("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", found)).patched
    assert patch[-1]["path"] == "/spec/leaderWorkerTemplate/leaderTemplate/spec/containers/1/args"


async def test_words_that_others_have_changed_are_left_alone():
    assert (await written("apps/v1", "StatefulSet", deployment(), before=AFTER)).patched == []


async def test_a_kind_that_is_not_known_is_never_written():
    with pytest.raises(UnsupportedTarget, match="kneekeeper patch"):
        await written("example.com/v1", "Server", deployment())
