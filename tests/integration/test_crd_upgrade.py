"""Objects that another version stored: after an upgrade read, kept whole and written on, after a downgrade too."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import control_plane
from kneekeeper.actuate.apply import Writers
from kneekeeper.actuate.status import write_status
from kneekeeper.api.crds import KINDS
from kneekeeper.api.model import API_VERSION, GROUP
from kneekeeper.domain.names import FINALIZER
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.ticks import PROFILE, RUN, Connections, tick
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import AlreadyExists, Invalid, NotFound
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.own_resources import UnreadableResource, parse_profile, parse_run
from tests.chaos.engines import Engines
from tests.crd_cases import FULL_SPEC
from tests.integration.kept_crds import kept, kept_versions, present
from tests.integration.place import CRDS, NAMESPACES, NOW, SETTINGS
from tests.integration.serving import eventually
from tests.schema_samples import sample

STORED = (SERVING_PROFILES, TUNING_RUNS)
SCHEMA = ("spec", "versions", 0, "schema", "openAPIV3Schema", "properties")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """Of a server of its own, since its definitions are replaced."""
    with control_plane() as server:
        yield server.kubeconfig


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    async with await Kube.connect("test", str(kubeconfig)) as kube:
        yield kube


@pytest.fixture
async def namespace(kube: Kube) -> str:
    name = f"upgrade-{secrets.token_hex(4)}"
    await kube.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


def properties_of(definition: Resource) -> dict[str, Any]:
    node: Any = definition
    for step in SCHEMA:
        node = node[step]
    found: dict[str, Any] = node
    return found


async def install(kube: Kube, namespace: str, definitions: list[Resource]) -> None:
    """Returns when they are in force: when the server takes a field that this installation alone has."""
    mark = f"installed{next(_numbers)}"
    for definition in deepcopy(definitions):
        properties_of(definition)["spec"]["properties"][mark] = {"type": "string", "maxLength": 8}
        try:
            await kube.create(CRDS, "", definition)
        except AlreadyExists:
            replace = {"op": "replace", "path": "/spec/versions", "value": definition["spec"]["versions"]}
            await kube.json_patch(CRDS, "", definition["metadata"]["name"], [replace])
    for kind in STORED:
        body = resource(kind, namespace, mark) | {"spec": smallest(kind) | {mark: "x"}}
        await eventually(f"{mark} is in force", partial(_takes, kube, kind, namespace, body))


async def _takes(kube: Kube, kind: Kind, namespace: str, body: Resource) -> bool:
    try:
        await kube.create(kind, namespace, body)
    except (Invalid, NotFound):
        return False
    return True


def resource(kind: Kind, namespace: str, name: str) -> Resource:
    return {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": name, "namespace": namespace}}


def smallest(kind: Kind) -> dict[str, Any]:
    if kind == TUNING_RUNS:
        return {"profileName": "chat"}
    return {"targetRef": {"kind": "Deployment", "name": "chat"}, "slo": {"p99TPOT": "40ms"}}


def _known_to(schema: dict[str, Any], value: Any) -> Any:
    """As much of a value as this schema knows."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {key: _known_to(known[key], child) for key, child in value.items() if key in known}
    if isinstance(value, list):
        allowed = schema["items"].get("enum")
        return [_known_to(schema["items"], child) for child in value if allowed is None or child in allowed]
    return value


def full_objects(definitions: list[Resource]) -> dict[Kind, tuple[Resource, Resource]]:
    """Spec and status of each kind in which everything is set that this version knows."""
    schemas = {kind: properties_of(definition) for kind, definition in zip(STORED, _in_order(definitions), strict=True)}
    spec = _known_to(schemas[SERVING_PROFILES]["spec"], FULL_SPEC)
    given = {"profileSpec": spec, "workload": spec["workload"]}
    specs = {SERVING_PROFILES: spec, TUNING_RUNS: smallest(TUNING_RUNS)}
    return {kind: (specs[kind], sample(schemas[kind]["status"], given=given)) for kind in STORED}


def _in_order(definitions: list[Resource]) -> list[Resource]:
    by_plural = {each["spec"]["names"]["plural"]: each for each in definitions}
    return [by_plural[kind.plural] for kind in STORED]


def assert_contains(whole: Any, part: Any, path: str = "") -> None:
    """Nothing of `part` is missing in `whole` or other than there."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, f"{path}.{key} is gone"
            assert_contains(whole[key], value, f"{path}.{key}")
    elif isinstance(part, list):
        assert len(whole) == len(part), path
        for index, (ours, theirs) in enumerate(zip(whole, part, strict=True)):
            assert_contains(ours, theirs, f"{path}[{index}]")
    else:
        assert whole == part, path


def test_the_earlier_versions_are_kept():
    assert kept_versions()
    assert {kind.plural for kind in KINDS} == {kind.plural for kind in STORED}
    assert all(kind.group == GROUP for kind in STORED)


@pytest.mark.parametrize("version", kept_versions())
async def test_what_an_earlier_version_stored_is_read_whole_and_written_on(kube: Kube, namespace: str, version: str):
    await install(kube, namespace, kept(version))
    stored: dict[Kind, Resource] = {}
    for kind, (spec, status) in full_objects(kept(version)).items():
        made = await kube.create(kind, namespace, resource(kind, namespace, "chat") | {"spec": spec})
        stored[kind] = await kube.replace_status(kind, namespace, "chat", made | {"status": status})
        assert_contains(stored[kind]["status"], status)

    await install(kube, namespace, present())
    for kind in STORED:
        read = await kube.get(kind, namespace, "chat")
        assert_contains(read["spec"], stored[kind]["spec"])
        assert read["status"] == stored[kind]["status"]
    profile, run = [await kube.get(kind, namespace, "chat") for kind in STORED]
    new_profile, new_run = parse_profile(profile).status, parse_run(run).status
    assert_contains(new_profile.to_resource(), profile["status"])
    assert_contains(new_run.to_resource(), run["status"])

    written = await write_status(kube, SERVING_PROFILES, profile, new_profile.with_changes(stage="New"))
    assert_contains(written["status"], profile["status"] | {"stage": "New"})
    written = await write_status(kube, TUNING_RUNS, run, new_run.with_changes(message="New"))
    assert_contains(written["status"], run["status"] | {"message": "New"})


async def test_a_field_that_the_definitions_do_not_know_is_refused_and_never_dropped(kube: Kube, namespace: str):
    """As where the operator was upgraded and its definitions were not."""
    older = present()
    [profiles, _] = _in_order(older)
    del properties_of(profiles)["status"]["properties"]["stage"]
    await install(kube, namespace, older)
    made = await kube.create(
        SERVING_PROFILES, namespace, resource(SERVING_PROFILES, namespace, "new") | {"spec": smallest(SERVING_PROFILES)}
    )
    status = parse_profile(made).status.with_changes(stage="Ramp")
    with pytest.raises(Invalid, match="stage"):
        await write_status(kube, SERVING_PROFILES, made, status)
    assert "status" not in await kube.get(SERVING_PROFILES, namespace, "new")
    await install(kube, namespace, present())
    written = await write_status(kube, SERVING_PROFILES, await kube.get(SERVING_PROFILES, namespace, "new"), status)
    assert written["status"]["stage"] == "Ramp"


@pytest.mark.parametrize("version", kept_versions())
async def test_what_this_version_stored_is_kept_and_written_on_under_the_definitions_of_an_earlier_one(
    kube: Kube, namespace: str, version: str
):
    """As after a downgrade: what the earlier one knows is whole, and its operator may write it; then up again."""
    await install(kube, namespace, present())
    for kind, (spec, status) in full_objects(present()).items():
        made = await kube.create(kind, namespace, resource(kind, namespace, "chat") | {"spec": spec})
        await kube.replace_status(kind, namespace, "chat", made | {"status": status})

    await install(kube, namespace, kept(version))
    known: dict[Kind, Resource] = {}
    for kind, definition in zip(STORED, _in_order(kept(version)), strict=True):
        known[kind] = await kube.get(kind, namespace, "chat")
        for part in ("spec", "status"):
            schema = properties_of(definition)[part]
            assert_contains(known[kind][part], _known_to(schema, full_objects(present())[kind][part == "status"]))
        written = await kube.replace_status(kind, namespace, "chat", known[kind])
        assert written["status"] == known[kind]["status"]

    await install(kube, namespace, present())
    profile, run = [await kube.get(kind, namespace, "chat") for kind in STORED]
    assert_contains(profile["status"], known[SERVING_PROFILES]["status"])
    assert_contains(run["status"], known[TUNING_RUNS]["status"])
    parse_profile(profile)
    parse_run(run)


def later_definitions() -> list[Resource]:
    """Of a version to come, which has one more field everywhere."""
    later = present()
    for definition in later:
        for part in ("spec", "status"):
            _add_fields(properties_of(definition)[part])
    return later


def _add_fields(schema: dict[str, Any]) -> None:
    for child in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        _add_fields(child)
    if "properties" in schema:
        schema["properties"]["later"] = {"type": "string", "maxLength": 8}


def _with_later(schema: dict[str, Any], value: Any) -> Any:
    """With that field wherever it may be."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {key: _with_later(known[key], child) for key, child in value.items()} | {"later": "x"}
    if isinstance(value, list):
        return [_with_later(schema["items"], child) for child in value]
    return value


async def test_what_a_later_version_put_into_a_status_is_kept_and_changes_nothing(kube: Kube, namespace: str):
    """As where the operator was rolled back and its definitions were not."""
    await install(kube, namespace, later_definitions())
    for kind, definition in zip(STORED, _in_order(later_definitions()), strict=True):
        spec, status = full_objects(present())[kind]
        made = await kube.create(kind, namespace, resource(kind, namespace, "chat") | {"spec": spec})
        told = _with_later(properties_of(definition)["status"], status)
        await kube.replace_status(kind, namespace, "chat", made | {"status": told})
    profile, run = [await kube.get(kind, namespace, "chat") for kind in STORED]
    assert str(run["status"]).count("'later'") > 50
    parsed = parse_profile(profile).status
    assert_contains(parse_run(run).status.to_resource(), full_objects(present())[TUNING_RUNS][1])
    assert await write_status(kube, SERVING_PROFILES, profile, parsed, parsed) == profile
    written = await write_status(kube, SERVING_PROFILES, profile, parsed.with_changes(stage="New"), parsed)
    assert_contains(written["status"], profile["status"] | {"stage": "New"})


@asynccontextmanager
async def connected(kube: Kube) -> AsyncIterator[Connections]:
    engines = Engines(lambda: 0.0)
    async with engines.http() as http:
        yield Connections(
            clients=Clients(kube, http, engines.connect_agent),
            writers=Writers(kube, engines.connect_agent, SETTINGS),
            clock=lambda: NOW,
        )


async def test_a_spec_that_a_later_version_took_is_refused_with_a_condition_and_told_again_when_it_is_mended(
    kube: Kube, namespace: str
):
    await install(kube, namespace, later_definitions())
    spec = smallest(SERVING_PROFILES) | {"targetRef": {"kind": "Deployment", "name": "mine"}, "later": "x"}
    await kube.create(SERVING_PROFILES, namespace, resource(SERVING_PROFILES, namespace, "mine") | {"spec": spec})
    async with connected(kube) as to:
        with pytest.raises(UnreadableResource, match=r"spec\.later"):
            await tick(to, Key(PROFILE, namespace, "mine"))
        status = (await kube.get(SERVING_PROFILES, namespace, "mine"))["status"]
        told = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
        assert told == {"Accepted": ("False", "NotUnderstood"), "Ready": ("False", "NotUnderstood")}
        assert "spec.later" in status["conditions"][0]["message"]
        mend = [{"op": "remove", "path": "/spec/later"}]
        await kube.json_patch(SERVING_PROFILES, namespace, "mine", mend)
        await tick(to, Key(PROFILE, namespace, "mine"))
    status = (await kube.get(SERVING_PROFILES, namespace, "mine"))["status"]
    [accepted] = [c for c in status["conditions"] if c["type"] == "Accepted"]
    assert accepted["status"] == "True"


async def test_a_status_with_a_value_of_a_later_version_is_told_of_and_nothing_of_it_is_lost(
    kube: Kube, namespace: str
):
    """An enum has one more value: what it means is not known, so nothing is decided, and all of it stays."""
    later = present()
    [profiles, _] = _in_order(later)
    of_recommendation = properties_of(profiles)["status"]["properties"]["recommendation"]["properties"]
    of_recommendation["boundBy"]["enum"].append("Later")
    await install(kube, namespace, later)
    spec, status = full_objects(present())[SERVING_PROFILES]
    status["recommendation"]["boundBy"] = "Later"
    made = await kube.create(
        SERVING_PROFILES, namespace, resource(SERVING_PROFILES, namespace, "mine") | {"spec": spec}
    )
    await kube.replace_status(SERVING_PROFILES, namespace, "mine", made | {"status": status})
    async with connected(kube) as to:
        for _ in range(2):
            with pytest.raises(UnreadableResource, match=r"status\.recommendation\.boundBy"):
                await tick(to, Key(PROFILE, namespace, "mine"))
    stored = (await kube.get(SERVING_PROFILES, namespace, "mine"))["status"]
    conditions = {each["type"]: each for each in stored.pop("conditions")}
    told = {c: (conditions[c]["status"], conditions[c]["reason"]) for c in ("Accepted", "Ready")}
    assert told == {"Accepted": ("False", "NotUnderstood"), "Ready": ("False", "NotUnderstood")}
    assert "Run the version that wrote it" in conditions["Accepted"]["message"]
    known = {each["type"] for each in status.pop("conditions")}
    assert known <= set(conditions)
    assert_contains(stored, status)


async def test_profiles_and_runs_that_a_later_version_made_are_let_go_when_they_are_deleted(kube: Kube, namespace: str):
    await install(kube, namespace, later_definitions())
    finalizers = {"finalizers": [FINALIZER]}
    for kind, spec in ((SERVING_PROFILES, {"targetRef": {"kind": "Deployment", "name": "mine"}}), (TUNING_RUNS, {})):
        body = resource(kind, namespace, "mine") | {"spec": smallest(kind) | spec | {"later": "x"}}
        body["metadata"] |= finalizers
        await kube.create(kind, namespace, body)
    async with connected(kube) as to:
        for key, kind in (
            (Key(RUN, namespace, "mine"), TUNING_RUNS),
            (Key(PROFILE, namespace, "mine"), SERVING_PROFILES),
        ):
            with pytest.raises(UnreadableResource, match=r"spec\.later"):
                await tick(to, key)
            await kube.delete(kind, namespace, "mine")
            looks = [await tick(to, key) for _ in range(4)]
            assert looks[-1].release
