"""Every kind of target against a real API server: read, written in one place only, and put back exactly."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from kneekeeper.actuate.workload import scale, write_words
from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import Applied, ContainerWords, EngineFacts, ServingProfileStatus
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.actions import ScaleWorkload, WriteWords
from kneekeeper.domain.target import Target, resolve, words_with
from kneekeeper.domain.targets import Asked
from kneekeeper.domain.targets.fields import field_changes, reversed_changes, stand_as
from kneekeeper.domain.targets.recognition import recognised_workload
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, STATEFUL_SETS, Kind, Resource
from kneekeeper.observe.target import read_workload
from tests.integration.place import NOW, Place
from tests.integration.target_crds import api_version, install, resource
from tests.unit.kube_objects import template

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
FLAGS = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
LABELS = {"matchLabels": {"app": "chat"}}

WITH_PODS: dict[str, dict[str, Any]] = {
    "StatefulSet": {"replicas": 2, "selector": LABELS, "serviceName": "chat", "template": template()},
    "Rollout": {"replicas": 2, "selector": LABELS, "template": template(), "strategy": {"canary": {}}},
    "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "leaderTemplate": template()}},
}
MADE: dict[str, dict[str, Any]] = {
    "InferenceService": {"predictor": {"model": {"modelFormat": {"name": "huggingface"}, "runtime": "vllm"}}},
    "VLLMRuntime": {"model": {"modelURL": "example/chat-8b", "maxNumSeqs": 256}},
}


def plain(resource: Resource) -> Resource:
    """What a user sees: without what the API server writes."""
    made = deepcopy(resource)
    for field in ("generation", "managedFields", "resourceVersion"):
        made["metadata"].pop(field, None)
    made.pop("status", None)
    return made


async def created(place: Place, kind: str, spec: dict[str, Any]) -> tuple[TargetRef, Kind]:
    """An object named chat; a new CRD is served a moment after it was made."""
    if kind == "StatefulSet":
        ref, where = TargetRef(kind=kind, name="chat"), STATEFUL_SETS
    else:
        await install(place.kube, kind)
        ref, where = TargetRef(api_version=api_version(kind), kind=kind, name="chat"), resource(kind)
    body = {"apiVersion": where.api_version, "kind": kind, "metadata": {"name": "chat"}, "spec": spec}
    for _ in range(200):
        try:
            await place.kube.create(where, place.namespace, body)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return ref, where
    raise AssertionError(f"{where.plural} is not served")


async def target_of(place: Place, ref: TargetRef) -> Target:
    workload = await read_workload(place.kube, place.namespace, ref)
    assert workload is not None
    found = resolve(workload.view, ref, "")
    assert isinstance(found, Target)
    return found


def after_of(target: Target) -> ContainerWords:
    words = words_with(target.container, SETTING)
    assert isinstance(words, ContainerWords)
    return words


@pytest.mark.parametrize("kind", WITH_PODS)
async def test_words_in_a_template_are_written_put_back_and_nothing_else_changes(place, kind):
    ref, where = await created(place, kind, WITH_PODS[kind])
    before = await place.get(where, "chat")
    target = await target_of(place, ref)
    write = WriteWords("vllm", target.container.words, after_of(target))
    assert await write_words(place.kube, place.namespace, ref, write)
    assert (await target_of(place, ref)).present == SETTING
    assert (await target_of(place, ref)).workload.last_writer == "kneekeeper"
    assert not await write_words(place.kube, place.namespace, ref, write)
    assert await write_words(place.kube, place.namespace, ref, WriteWords("vllm", write.after, write.before))
    assert plain(await place.get(where, "chat")) == plain(before)


@pytest.mark.parametrize("kind", WITH_PODS)
async def test_a_replica_is_borrowed_and_given_back_through_the_scale(place, kind):
    ref, where = await created(place, kind, WITH_PODS[kind])
    assert await scale(place.kube, place.namespace, ref, ScaleWorkload(expected=2, wanted=1))
    assert (await place.get(where, "chat"))["spec"]["replicas"] == 1
    assert not await scale(place.kube, place.namespace, ref, ScaleWorkload(expected=2, wanted=1))
    assert await scale(place.kube, place.namespace, ref, ScaleWorkload(expected=1, wanted=2))
    assert (await place.get(where, "chat"))["spec"]["replicas"] == 2


async def make_deployment(place: Place, kind: str, uid: str, args: list[str]) -> None:
    """As the owner's controller would."""
    made = template()
    made["spec"]["containers"][1]["args"] = args
    owner = {"apiVersion": api_version(kind), "kind": kind, "name": "chat", "uid": uid, "controller": True}
    body = {
        "metadata": {"name": "chat-made", "ownerReferences": [owner]},
        "spec": {"replicas": 1, "selector": LABELS, "template": made},
    }
    await place.kube.create(DEPLOYMENTS, place.namespace, body)


@pytest.mark.parametrize("kind", MADE)
async def test_of_what_a_controller_makes_the_owner_is_written_never_the_deployment(place, kind):
    ref, where = await created(place, kind, MADE[kind])
    owner = await place.get(where, "chat")
    await make_deployment(place, kind, owner["metadata"]["uid"], ["example/chat-8b", "--max-num-seqs=256"])
    deployment = await place.get(DEPLOYMENTS, "chat-made")
    target = await target_of(place, ref)
    assert target.present.max_num_seqs == 256
    assert target.workload.source is not None
    changes = field_changes(target.workload.source, Asked(SETTING, None))
    assert isinstance(changes, tuple)
    write = WriteWords("vllm", target.container.words, after_of(target), changes)
    assert await write_words(place.kube, place.namespace, ref, write)
    assert not await write_words(place.kube, place.namespace, ref, write)
    assert (await target_of(place, ref)).workload.last_writer == "kneekeeper"
    assert stand_as(await place.get(where, "chat"), changes)
    assert (await place.get(DEPLOYMENTS, "chat-made"))["metadata"]["resourceVersion"] == (
        deployment["metadata"]["resourceVersion"]
    )
    back = WriteWords("vllm", write.after, write.before, reversed_changes(changes))
    assert await write_words(place.kube, place.namespace, ref, back)
    assert plain(await place.get(where, "chat"))["spec"] == owner["spec"]


async def test_fields_that_others_changed_meanwhile_are_left_alone(place):
    ref, where = await created(place, "VLLMRuntime", MADE["VLLMRuntime"])
    uid = (await place.get(where, "chat"))["metadata"]["uid"]
    await make_deployment(place, "VLLMRuntime", uid, ["example/chat-8b", "--max-num-seqs=256"])
    target = await target_of(place, ref)
    assert target.workload.source is not None
    changes = field_changes(target.workload.source, Asked(SETTING, None))
    assert isinstance(changes, tuple)
    edit = [{"op": "replace", "path": "/spec/model/maxNumSeqs", "value": 128}]
    await place.kube.json_patch(where, place.namespace, "chat", edit)
    write = WriteWords("vllm", target.container.words, after_of(target), changes)
    assert not await write_words(place.kube, place.namespace, ref, write)
    found = (await place.get(where, "chat"))["spec"]
    assert found["model"]["maxNumSeqs"] == 128
    assert "vllmConfig" not in found


async def test_words_that_a_controller_made_in_its_own_order_are_known_again(place):
    ref, where = await created(place, "VLLMRuntime", MADE["VLLMRuntime"])
    uid = (await place.get(where, "chat"))["metadata"]["uid"]
    await make_deployment(place, "VLLMRuntime", uid, ["--max-num-seqs", "64", "example/chat-8b", FLAGS[1]])
    target = await target_of(place, ref)
    after = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", *FLAGS])
    engine = EngineFacts(container="vllm", image="i", model="m", replicas=1, fingerprint="f")
    assert target.workload.source is not None
    changes = field_changes(target.workload.source, Asked(SETTING, None))
    assert isinstance(changes, tuple)
    applied = Applied(
        setting=SETTING, before=ContainerWords(), after=after, fields=list(changes), at=NOW, verified=True
    )
    status = ServingProfileStatus(engine=engine, applied=applied)
    [_, container] = recognised_workload(target.workload, status).containers
    assert container.words == after
