"""What the operator may do by the chart's rules is what it does, and nothing else.

All that it can do is done once as its ServiceAccount: its own process lives three profiles, a tuned one lives on a
virtual clock, and each kind of target is read, written, scaled and put back. The API server's audit log says what that
took.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest

from kneekeeper.actuate.workload import scale, write_words
from kneekeeper.api.serving_profile import TargetRef, UpdateMethod
from kneekeeper.domain.actions import ScaleWorkload, WriteWords
from kneekeeper.domain.plan.writing import fields_with
from kneekeeper.domain.targets.fields import reversed_changes
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import VOLUME_CLAIMS
from tests.chaos.campaign import lives
from tests.chaos.stories import TUNED
from tests.integration.api_use import RELEASE, Permission, granted, permission_of, render_chart
from tests.integration.operator_place import OperatorPlace, operator_place
from tests.integration.place import REF, Place, make_place
from tests.integration.scenarios import (
    a_clone_fails_and_is_cleaned_up,
    a_recommendation_is_written_and_taken_back,
    a_replica_is_borrowed_and_returned,
)
from tests.integration.serving import Serving, add_node
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

pytestmark = pytest.mark.timeout(600)

NEVER_ASKED_FOR = {
    # An admission plugin asks for it where it is on, and leaves nothing in the audit log.
    Permission("kneekeeper.io", "servingprofiles/finalizers", "update"),
    Permission("kneekeeper.io", "tuningruns/finalizers", "update"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorPlace]:
    """An API server of this file's own, whose audit log is read."""
    with operator_place(tmp_path_factory.mktemp("rights")) as place:
        yield place


@pytest.fixture
async def kube(place: OperatorPlace) -> AsyncIterator[Kube]:
    """Of an administrator."""
    async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
        yield kube


@pytest.fixture
async def operators(place: OperatorPlace) -> AsyncIterator[Kube]:
    """Of the operator's ServiceAccount."""
    async with await Kube.connect("test", str(place.kubeconfig)) as kube:
        yield kube


async def test_what_the_operator_does_needs_the_charts_rules_exactly(place, kube, operators):
    await the_process_lives(place, kube)
    await a_life_is_tuned(place)
    for kind in WITH_PODS:
        await a_workload_is_written_and_scaled(kube, operators, kind)
    for kind in [*MADE, "Model"]:
        await an_owner_is_written(kube, operators, kind)
    await a_workspace_is_read(kube, operators)
    await a_config_file_is_written(kube, operators)
    calls = place.calls()
    assert [(call.verb, call.uri) for call in calls if call.status_code == httpx.codes.FORBIDDEN] == []
    used = {permission for call in calls if (permission := permission_of(call)) is not None}
    rules = granted(render_chart(RELEASE))
    assert "*" not in {word for permission in rules for word in permission}
    assert sorted(map(str, used | NEVER_ASKED_FOR)) == sorted(map(str, rules))
    assert not used & NEVER_ASKED_FOR


async def the_process_lives(place: OperatorPlace, kube: Kube) -> None:
    await add_node(kube, "free", "GPU-with-room", gpus=64)
    rights = await Serving.create(kube, "rights", "free", place.engine_port)
    claim = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}
    await kube.create(VOLUME_CLAIMS, "rights", {"metadata": {"name": "weights"}, "spec": claim})
    await rights.deploy("chat", volumes=[{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}])
    await rights.deploy("lend", replicas=2)
    await rights.deploy("write")
    with place.operator():
        await a_clone_fails_and_is_cleaned_up(rights)
        await a_replica_is_borrowed_and_returned(rights)
        await a_recommendation_is_written_and_taken_back(rights)


async def a_life_is_tuned(place: OperatorPlace) -> None:
    """Measured, certified and applied."""
    async with lives(place.server.kubeconfig, place.kubeconfig) as places:
        assert (await places.expected(TUNED)).outcome == "Certified/Certified"


async def a_workload_is_written_and_scaled(kube: Kube, operators: Kube, kind: str) -> None:
    place = await make_place(kube)
    ref, _ = await created(place, kind, WITH_PODS[kind])
    await put_there_and_back(replace(place, kube=operators), ref, UpdateMethod.AUTO)
    assert await scale(operators, place.namespace, ref, ScaleWorkload(expected=2, wanted=1))


async def an_owner_is_written(kube: Kube, operators: Kube, kind: str) -> None:
    place = await make_place(kube)
    if kind == "Model":
        ref, _ = await created_model(place)
    else:
        ref, where = await created(place, kind, MADE[kind])
        uid = (await place.get(where, "chat"))["metadata"]["uid"]
        await make_deployment(place, kind, uid, ["example/chat-8b", "--max-num-seqs=256"])
    await put_there_and_back(replace(place, kube=operators), ref, UpdateMethod.AUTO)


async def a_workspace_is_read(kube: Kube, operators: Kube) -> None:
    """Nothing of it is written by anybody but its user."""
    place = await make_place(kube)
    ref, where = await created(place, "Workspace", None, inference={"preset": {"name": "chat-8b"}})
    uid = (await place.get(where, "chat"))["metadata"]["uid"]
    await make_deployment(place, "Workspace", uid, ["example/chat-8b", "--max-num-seqs=256"])
    assert (await target_of(replace(place, kube=operators), ref)).present.max_num_seqs == 256


async def a_config_file_is_written(kube: Kube, operators: Kube) -> None:
    place = await make_place(kube)
    await deploy_with_config_file(place)
    await put_there_and_back(replace(place, kube=operators), REF, UpdateMethod.CONFIG_MAP)


async def put_there_and_back(place: Place, ref: TargetRef, method: UpdateMethod) -> None:
    """The setting, as a rollout and its way back do it."""
    target = await target_of(place, ref)
    fields = fields_with(target, SETTING, method)
    assert isinstance(fields, tuple)
    there = WriteWords("vllm", target.container.words, after_of(target), fields)
    back = WriteWords("vllm", there.after, there.before, reversed_changes(fields))
    assert await write_words(place.kube, place.namespace, ref, there)
    assert await write_words(place.kube, place.namespace, ref, back)
