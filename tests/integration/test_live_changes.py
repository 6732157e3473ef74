"""The live-tuning plugin in a Deployment at a real API server: written, known again, switched and taken out."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.actuate.apply import ActionsFailed
from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import FieldChange
from kneekeeper.domain.actions import EnsureLimits, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.live_delivery import LIMITS_KEY, Delivery, PluginImage
from kneekeeper.domain.live_fields import delivery_fields, limits_as_text, removal_fields, switch_fields
from kneekeeper.domain.names import limits_name
from kneekeeper.domain.observation import ContainerView, WorkloadView
from kneekeeper.domain.target import present_setting, words_with
from kneekeeper.domain.targets.fields import NotWritable, reversed_changes, stand_as
from kneekeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, Resource
from kneekeeper.observe.target import read_workload
from tests.integration.place import REF, Place
from tests.unit.kube_objects import template

STARTED, NIGHT, DAY = (
    Setting(max_num_seqs=256, max_num_batched_tokens=8192),
    Setting(max_num_seqs=16, max_num_batched_tokens=4096),
    Setting(max_num_seqs=64, max_num_batched_tokens=2048),
)
IMAGE = PluginImage("registry.example.com/kneekeeper:1", pull_secrets=("ours",))
LIMITS = limits_name("chat")


async def workload(place: Place) -> WorkloadView:
    read = await read_workload(place.kube, place.namespace, REF)
    assert read is not None
    return read.view


def engine(view: WorkloadView) -> ContainerView:
    return next(container for container in view.containers if container.name == "vllm")


async def spec_of(place: Place) -> Resource:
    found: Resource = (await place.get(DEPLOYMENTS, "chat"))["spec"]
    return found


async def generation(place: Place) -> int:
    return int((await place.get(DEPLOYMENTS, "chat"))["metadata"]["generation"])


async def write(place: Place, fields: tuple[FieldChange, ...]) -> None:
    words = engine(await workload(place)).words
    await place.do_for_profile(WriteWords("vllm", words, words, fields))


async def delivered(place: Place, **more: Any) -> tuple[FieldChange, ...]:
    made = template(**more)
    made["spec"]["containers"][1]["args"] = ["example/chat-8b"]
    await place.deploy(made)
    view = await workload(place)
    words = words_with(engine(view), STARTED)
    assert not isinstance(words, Refusal)
    fields = delivery_fields(view, engine(view).env, words, Delivery("vllm", LIMITS, STARTED, NIGHT), IMAGE)
    assert not isinstance(fields, NotWritable)
    await write(place, fields)
    return fields


async def test_it_is_one_write_whose_values_the_api_server_keeps_as_they_are(place: Place):
    fields = await delivered(place)
    assert await generation(place) == 2
    assert stand_as(await place.get(DEPLOYMENTS, "chat"), fields)
    view = await workload(place)
    assert view.live is not None
    assert view.live.stands
    assert view.live.limits is None
    assert present_setting(engine(view)) == NIGHT
    await write(place, fields)
    assert await generation(place) == 2


async def test_all_of_it_is_taken_back_to_the_letter(place: Place):
    made = template(imagePullSecrets=[{"name": "theirs"}])
    await place.deploy(made)
    before = await spec_of(place)
    view = await workload(place)
    words = words_with(engine(view), STARTED)
    assert not isinstance(words, Refusal)
    fields = delivery_fields(view, engine(view).env, words, Delivery("vllm", LIMITS, STARTED, NIGHT), IMAGE)
    assert not isinstance(fields, NotWritable)
    for rolled_back in (True, False):
        await write(place, fields)
        now = await workload(place)
        assert now.live is not None
        await write(place, reversed_changes(fields) if rolled_back else removal_fields(now, engine(view).words, fields))
        assert await spec_of(place) == before


async def test_a_switch_is_one_write_of_a_config_map_and_no_rollout(place: Place):
    await delivered(place)
    await place.do_for_profile(EnsureLimits(LIMITS, NIGHT))
    made = await place.get(CONFIG_MAPS, LIMITS)
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ServingProfile", "chat")
    for before, after in ((NIGHT, DAY), (DAY, NIGHT)):
        await write(place, switch_fields(LIMITS, limits_as_text(before), after))
        assert (await place.get(CONFIG_MAPS, LIMITS))["data"] == {LIMITS_KEY: limits_as_text(after)}
        assert present_setting(engine(await workload(place))) == after
    assert await generation(place) == 2


async def test_a_config_map_that_somebody_wrote_meanwhile_is_left_alone(place: Place):
    await delivered(place)
    await place.do_for_profile(EnsureLimits(LIMITS, DAY))
    await write(place, switch_fields(LIMITS, limits_as_text(NIGHT), STARTED))
    assert (await place.get(CONFIG_MAPS, LIMITS))["data"] == {LIMITS_KEY: limits_as_text(DAY)}


@pytest.mark.parametrize("data", [{}, {LIMITS_KEY: "nonsense"}, None])
async def test_a_config_map_that_says_nothing_is_written_anew(place: Place, data: dict[str, str] | None):
    await place.do_for_profile(EnsureLimits(LIMITS, NIGHT))
    patch = [{"op": "remove", "path": "/data"}] if data is None else [{"op": "add", "path": "/data", "value": data}]
    await place.kube.json_patch(CONFIG_MAPS, place.namespace, LIMITS, patch)
    await place.do_for_profile(EnsureLimits(LIMITS, DAY))
    assert (await place.get(CONFIG_MAPS, LIMITS))["data"] == {LIMITS_KEY: limits_as_text(DAY)}


async def test_a_config_map_of_somebody_else_is_never_written(place: Place):
    metadata = {"name": LIMITS, "namespace": place.namespace}
    await place.kube.create(CONFIG_MAPS, place.namespace, {"metadata": metadata, "data": {"theirs": "1"}})
    with pytest.raises(ActionsFailed, match="not of this owner"):
        await place.do_for_profile(EnsureLimits(LIMITS, NIGHT))
    assert (await place.get(CONFIG_MAPS, LIMITS))["data"] == {"theirs": "1"}


async def test_what_others_add_meanwhile_stays(place: Place):
    fields = await delivered(place)
    theirs = {"name": "THEIRS", "value": "1"}
    path = "/spec/template/spec/containers/1/env/0"
    await place.kube.json_patch(DEPLOYMENTS, place.namespace, "chat", [{"op": "add", "path": path, "value": theirs}])
    view = await workload(place)
    await write(place, removal_fields(view, engine(view).words, fields))
    after = await workload(place)
    assert after.live is None
    assert present_setting(engine(after)) == NIGHT
    made = (await spec_of(place))["template"]["spec"]
    assert [v["name"] for v in made["containers"][1]["env"]] == ["THEIRS", "HF_HOME", "HF_TOKEN"]
    assert [v["name"] for v in made["volumes"]] == ["models"]
    assert "initContainers" not in made
