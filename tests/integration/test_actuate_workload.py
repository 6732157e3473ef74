"""Writes to the workload at a real API server: once, nothing else, and never over what others wrote."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.actuate.apply import ActionsFailed, ProfileSubject, Writers, perform
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.actions import ScaleWorkload, WriteWords
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Invalid, ServerTrouble
from kneekeeper.kube.resources import DEPLOYMENTS, Kind, Resource
from kneekeeper.observe.own_resources import parse_profile
from kneekeeper.observe.target import read_workload
from tests.integration.place import NOW, REF, SETTINGS, Place
from tests.unit.kube_objects import template

BEFORE = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=256"])
AFTER = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=64"])


async def test_words_are_written_and_nothing_else(place):
    await place.deploy(template())
    before = await place.get(DEPLOYMENTS, "chat")
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    after = await place.get(DEPLOYMENTS, "chat")
    assert after["spec"]["template"]["spec"]["containers"][1]["args"] == AFTER.args
    before["spec"]["template"]["spec"]["containers"][1]["args"] = AFTER.args
    assert after["spec"] == before["spec"]
    workload = await read_workload(place.kube, place.namespace, REF)
    assert workload is not None
    assert workload.view.last_writer == "kneekeeper"


async def test_words_are_written_once(place):
    await place.deploy(template())
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    generation = (await place.get(DEPLOYMENTS, "chat"))["metadata"]["generation"]
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    assert (await place.get(DEPLOYMENTS, "chat"))["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ContainerWords(command=["vllm", "serve"]), AFTER),
        (ContainerWords(args=["a"]), ContainerWords(command=["b"], args=["c"])),
        (ContainerWords(), ContainerWords(args=["a"])),
        (AFTER, ContainerWords(command=["only"])),
    ],
)
async def test_words_that_are_absent_are_added_and_removed_and_can_be_taken_back(place, before, after):
    made = template()
    engine = made["spec"]["containers"][1]
    engine.pop("command")
    engine.pop("args")
    engine |= before.to_resource()
    await place.deploy(made)
    for old, new in ((before, after), (after, before)):
        await place.do_for_profile(WriteWords("vllm", old, new))
        workload = await read_workload(place.kube, place.namespace, REF)
        assert workload is not None
        assert workload.view.containers[1].words == new


async def test_words_of_somebody_else_are_left_alone(place):
    await place.deploy(template())
    theirs = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=128"])
    await place.do_for_profile(WriteWords("vllm", BEFORE, theirs))
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    workload = await read_workload(place.kube, place.namespace, REF)
    assert workload is not None
    assert workload.view.containers[1].words == theirs


class Meddler(Kube):
    """Somebody else writes right after each read of a Deployment."""

    meddle: Any = None

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        found = await super().get(kind, namespace, name)
        if kind == DEPLOYMENTS and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return found


async def meddled(place: Place, api_server: str, patch: list[dict[str, Any]], action: WriteWords) -> None:
    async with await Meddler.connect("test", api_server) as kube:

        async def meddle() -> None:
            await place.kube.json_patch(DEPLOYMENTS, place.namespace, "chat", patch)

        kube.meddle = meddle
        writers = Writers(kube, place.agent.connect, SETTINGS)
        await perform(writers, ProfileSubject(parse_profile(place.profile)), [action], NOW)


async def test_words_that_change_between_reading_and_writing_are_left_alone(place, api_server):
    await place.deploy(template())
    theirs = ["example/chat-8b", "--max-num-seqs=128"]
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/1/args", "value": theirs}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    container = (await place.get(DEPLOYMENTS, "chat"))["spec"]["template"]["spec"]["containers"][1]
    assert container["args"] == theirs


async def test_containers_that_change_places_between_reading_and_writing_are_left_alone(place, api_server):
    await place.deploy(template())
    patch = [{"op": "move", "from": "/spec/template/spec/containers/1", "path": "/spec/template/spec/containers/0"}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    containers = (await place.get(DEPLOYMENTS, "chat"))["spec"]["template"]["spec"]["containers"]
    assert [c.get("args") for c in containers] == [BEFORE.args, None]


async def test_other_writes_between_reading_and_writing_do_no_harm(place, api_server):
    await place.deploy(template())
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"example.com/note": "x"}}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    found = await place.get(DEPLOYMENTS, "chat")
    assert found["spec"]["template"]["spec"]["containers"][1]["args"] == AFTER.args
    assert found["metadata"]["annotations"]["example.com/note"] == "x"


async def test_refused_words_are_an_error_and_not_taken_for_a_change_by_others(place):
    await place.deploy(template())
    too_large = ContainerWords(command=["vllm"], args=["x" * 16_000] * 100)
    with pytest.raises(ActionsFailed) as failed:
        await place.do_for_profile(WriteWords("vllm", BEFORE, too_large))
    assert isinstance(failed.value.failures[0].error, Invalid | ServerTrouble)


async def replicas(place: Place) -> int:
    count: int = (await place.get(DEPLOYMENTS, "chat"))["spec"]["replicas"]
    return count


async def test_a_replica_is_taken_and_given_back_once(place):
    await place.deploy(template())
    for _ in range(2):
        await place.do(ScaleWorkload(expected=2, wanted=1))
        assert await replicas(place) == 1
    for _ in range(2):
        await place.do(ScaleWorkload(expected=1, wanted=2))
        assert await replicas(place) == 2


async def test_replicas_that_somebody_else_set_are_left_alone(place):
    await place.deploy(template())
    await place.do(ScaleWorkload(expected=3, wanted=2))
    assert await replicas(place) == 2
    await place.do(ScaleWorkload(expected=1, wanted=5))
    assert await replicas(place) == 2


async def test_scaling_touches_nothing_else(place):
    await place.deploy(template())
    before = await place.get(DEPLOYMENTS, "chat")
    await place.do(ScaleWorkload(expected=2, wanted=1))
    assert (await place.get(DEPLOYMENTS, "chat"))["spec"] == before["spec"] | {"replicas": 1}
