"""Every kind of target against a real API server: read, written in one place only, and put back exactly."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from kneekeeper.actuate.workload import scale, write_words
from kneekeeper.api.profile_status import EngineFacts, ServingProfileStatus
from kneekeeper.api.rollout import Applied, ContainerWords, Rollout, RolloutStep
from kneekeeper.api.serving_profile import TargetRef, UpdateMethod
from kneekeeper.domain.actions import ScaleWorkload, WriteWords
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.plan.writing import fields_with
from kneekeeper.domain.targets import Asked, Engine, Objects, Outcome
from kneekeeper.domain.targets.fields import (
    NotWritable,
    changes_of,
    field_changes,
    json_patch,
    reversed_changes,
    stand_as,
)
from kneekeeper.domain.targets.patches import patches_of, setting_changes
from kneekeeper.domain.targets.planning import engines_in, plan
from kneekeeper.domain.targets.recognition import recognised_workload
from kneekeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, Resource
from kneekeeper.observe.target import read_workload
from tests.integration.place import NOW, REF
from tests.integration.target_objects import (
    MADE,
    SETTING,
    WITH_PODS,
    after_of,
    created,
    created_model,
    deploy_with_config_file,
    make_deployment,
    target_of,
)
from tests.unit.kube_objects import template

FLAGS = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]


def plain(resource: Resource) -> Resource:
    """What a user sees: without what the API server writes."""
    made = deepcopy(resource)
    for field in ("generation", "managedFields", "resourceVersion"):
        made["metadata"].pop(field, None)
    made.pop("status", None)
    return made


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


async def test_of_pods_that_a_model_makes_by_itself_the_model_is_written(place):
    ref, where = await created_model(place)
    owner = await place.get(where, "chat")
    target = await target_of(place, ref)
    assert target.present.max_num_seqs == 256
    assert target.workload.source is not None
    changes = field_changes(target.workload.source, Asked(SETTING, None))
    assert isinstance(changes, tuple)
    write = WriteWords("vllm", target.container.words, after_of(target), changes)
    assert await write_words(place.kube, place.namespace, ref, write)
    assert (await place.get(where, "chat"))["spec"]["args"] == ["--seed=1", *FLAGS]
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


SERVE_CONFIG = """\
applications:
  - name: chat  # by hand
    args:
      llm_configs:
        - model_loading_config: {model_id: chat-8b}
          engine_kwargs: {max_num_seqs: 256}
"""
IN_FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "RayService": ("chat-8b", {"serveConfigV2": SERVE_CONFIG}),
    "StormService": (
        "decode",
        {"replicas": 1, "template": {"spec": {"roles": [{"name": "decode", "replicas": 2, "template": template()}]}}},
    ),
}


@pytest.mark.parametrize("kind", IN_FILES)
async def test_what_is_changed_in_files_only_is_taken_by_the_api_server_and_put_back(place, kind):
    part, spec = IN_FILES[kind]
    _, where = await created(place, kind, spec)
    before = await place.get(where, "chat")

    def as_file(found: Resource) -> Objects:
        return Objects((ManifestObject(0, (), {"apiVersion": where.api_version, **found, "kind": kind}),))

    answer = plan(as_file(before).items[0], as_file(before), Asked(SETTING, part))
    assert answer.outcome is Outcome.REWRITE
    changes = changes_of(answer.edits)
    assert isinstance(changes, tuple)
    await place.kube.json_patch(where, place.namespace, "chat", json_patch(before, changes))
    after = await place.get(where, "chat")
    engines = engines_in(as_file(after).items[0], as_file(after))
    assert [
        (e.arguments.max_num_seqs, e.arguments.max_num_batched_tokens) for e in engines if isinstance(e, Engine)
    ] == [(SETTING.max_num_seqs, SETTING.max_num_batched_tokens)]
    back = json_patch(after, reversed_changes(changes))
    await place.kube.json_patch(where, place.namespace, "chat", back)
    assert plain(await place.get(where, "chat")) == plain(before)


async def test_of_a_custom_kind_that_is_not_known_the_change_is_recommended_and_never_written(place):
    ref, where = await created(place, "Server", {"replicas": 2, "template": template()})
    owner = await place.get(where, "chat")
    await make_deployment(place, "Server", owner["metadata"]["uid"], ["example/chat-8b", "--max-num-seqs=256"])
    target = await target_of(place, ref)
    assert (target.workload.kind, target.present.max_num_seqs) == ("Server", 256)
    refused = fields_with(target, SETTING, UpdateMethod.AUTO)
    assert isinstance(refused, NotWritable)
    assert refused.reason == "UnknownKind"
    told = patches_of(target.workload, target.container, after_of(target), SETTING)
    assert told.kubectl.startswith(f"kubectl -n {place.namespace} patch servers.example.com chat --type=json -p ")
    assert "kind: Server" in told.kustomize
    suggested = setting_changes(target.workload, target.container, after_of(target), SETTING)
    assert isinstance(suggested, tuple)
    await place.kube.json_patch(where, place.namespace, "chat", json_patch(owner, suggested))
    changed = (await place.get(where, "chat"))["spec"]["template"]["spec"]["containers"]
    assert [flag in changed[1]["args"] for flag in FLAGS] == [True, True]


async def test_a_custom_kind_that_the_cluster_does_not_serve_is_not_found(place):
    ref = TargetRef(api_version="nobody.example.com/v1", kind="Server", name="chat")
    assert await read_workload(place.kube, place.namespace, ref) is None


async def test_a_config_file_and_its_restart_are_written_together_and_put_back(place):
    await deploy_with_config_file(place)
    before = [plain(await place.get(DEPLOYMENTS, "chat")), plain(await place.get(CONFIG_MAPS, "engine"))]
    target = await target_of(place, REF)
    assert target.present.max_num_seqs == 256
    changes = fields_with(target, SETTING, UpdateMethod.CONFIG_MAP)
    assert isinstance(changes, tuple)
    write = WriteWords("vllm", target.container.words, after_of(target), changes)
    assert await write_words(place.kube, place.namespace, REF, write)
    assert not await write_words(place.kube, place.namespace, REF, write)
    assert (await target_of(place, REF)).present == SETTING
    assert "# by hand" in (await place.get(CONFIG_MAPS, "engine"))["data"]["config.yaml"]
    back = WriteWords("vllm", write.after, write.before, reversed_changes(changes))
    assert await write_words(place.kube, place.namespace, REF, back)
    assert [plain(await place.get(DEPLOYMENTS, "chat")), plain(await place.get(CONFIG_MAPS, "engine"))] == before


async def test_half_a_write_of_a_config_file_is_known_as_such_and_completed(place):
    await deploy_with_config_file(place)
    target = await target_of(place, REF)
    changes = fields_with(target, SETTING, UpdateMethod.CONFIG_MAP)
    assert isinstance(changes, tuple)
    write = WriteWords("vllm", target.container.words, after_of(target), changes)
    rollout = Rollout(
        step=RolloutStep.WRITE,
        setting=SETTING,
        before=write.before,
        after=write.after,
        fields=list(changes),
        started_at=NOW,
    )
    engine = EngineFacts(container="vllm", image="i", model="m", replicas=1, fingerprint="f")
    status = ServingProfileStatus(engine=engine, rollout=rollout)

    async def seen() -> ContainerWords:
        [_, container] = recognised_workload((await target_of(place, REF)).workload, status).containers
        return container.words

    assert await seen() == write.before
    file = {"op": "replace", "path": "/data/config.yaml", "value": json.loads(changes[0].after or "")}
    await place.kube.json_patch(CONFIG_MAPS, place.namespace, "engine", [file])
    assert await seen() == write.before, "the pods were not restarted yet"
    assert await write_words(place.kube, place.namespace, REF, write)
    assert await seen() == write.after
