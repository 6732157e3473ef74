"""kneekeeper's own resources as models, read strictly: what the CRD let in must be understood."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from kneekeeper.api.model import Condition
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.serving_profile import ServingProfile, TargetRef
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.manifests import value_at
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Invalid, NotFound
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from kneekeeper.kube.watch import list_page

# The CRDs make these fields selectable.
PROFILE_OF_RUN = ("spec", "profileName")
TARGET_OF_PROFILE = ("spec", "targetRef", "name")

_ANY_SPEC = {"targetRef": {"kind": "Deployment", "name": "any"}, "slo": {"p99TPOT": "1s"}}

_MOST_REMEMBERED = 128
_remembered: dict[tuple[str, str], TuningRun] = {}
"""Runs that are over, by uid and version: each look at their profile reads them again, and nothing takes longer to
parse. As many as a small fleet has; of a large one those that are read most often."""

Stored = TypeVar("Stored", ServingProfile, TuningRun)


class UnreadableResource(Exception):
    """A stored resource does not fit this version's models, for example after a downgrade."""


def parse_profile(resource: Resource) -> ServingProfile:
    """Raises UnreadableResource with the fields that do not fit."""
    return _parsed(ServingProfile, resource)


def parse_run(resource: Resource) -> TuningRun:
    """Raises UnreadableResource with the fields that do not fit."""
    return _parsed(TuningRun, resource)


def parse_profile_status(resource: Resource) -> ServingProfileStatus | None:
    """Of a profile whose spec may not be readable; None where its status is not either."""
    try:
        return _parsed(ServingProfile, resource | {"spec": _ANY_SPEC}).status
    except UnreadableResource:
        return None


def readable_conditions(resource: Resource) -> list[Condition]:
    """Those of a status that is not readable as a whole."""
    found = []
    for each in (resource.get("status") or {}).get("conditions") or []:
        with suppress(ValidationError):
            found.append(Condition.model_validate(each))
    return found


def _parsed(model: type[Stored], resource: Resource, is_going: bool = False) -> Stored:
    """Fields that a later version put into the status are left out, since they say nothing to this one; a value that
    this one does not know may be what it would decide on. A field of the spec is a user's wish, and must be understood.
    Of an object that goes whatever is not understood is left out: it is cleaned up after as far as is known.
    """
    parts = {part: resource.get(part) or {} for part in ("metadata", "spec", "status")}
    is_going = is_going or "deletionTimestamp" in parts["metadata"]
    while True:
        try:
            return model.model_validate(parts)
        except ValidationError as error:
            rest = _without(parts, _not_understood(error, is_going))
            if rest == parts and is_going and model is ServingProfile:
                rest = parts | {"spec": _ANY_SPEC}
            if rest == parts:
                raise _unreadable(model.__name__, resource, error) from error
            parts = rest


def _not_understood(error: ValidationError, is_going: bool) -> list[tuple[str | int, ...]]:
    """Where what may be left out lies; what lacks a part that it needs is left out whole."""
    errors = [(str(e["type"]), e["loc"]) for e in error.errors()]
    if not is_going:
        return [at for kind, at in errors if kind == "extra_forbidden" and at[0] == "status"]
    found = {at[:-1] if kind == "missing" else at for kind, at in errors if at[0] != "metadata"} - {("spec",)}
    return [at for at in found if not any(at[:steps] in found for steps in range(1, len(at)))]


def _without(value: Any, paths: Sequence[tuple[str | int, ...]]) -> Any:
    """A copy without what lies there; a step that is none of the value's, as a union's tag, is passed over."""
    copy = deepcopy(value)
    for path in sorted(paths, key=_later_items_first):
        holder, key, node = None, path[0], copy
        for step in path:
            is_there = step in node if isinstance(node, dict) else isinstance(node, list) and isinstance(step, int)
            if is_there:
                holder, key, node = node, step, node[step]
        if holder is not None:
            del holder[key]
    return copy


def _later_items_first(path: tuple[str | int, ...]) -> tuple[tuple[int, str], ...]:
    """So that an item that is taken out of a list moves none that is still to be."""
    return tuple((-step, "") if isinstance(step, int) else (0, step) for step in path)


async def read_profile(kube: Kube, namespace: str, name: str) -> ServingProfile | None:
    """The profile, None when it does not exist. Raises UnreadableResource."""
    try:
        return parse_profile(await kube.get(SERVING_PROFILES, namespace, name))
    except NotFound:
        return None


async def read_runs_of(kube: Kube, namespace: str, profile: str, *, are_going: bool = False) -> tuple[TuningRun, ...]:
    """The profile's runs, oldest first; those that go with it are read as far as they are understood. Raises
    UnreadableResource."""
    runs = await _with_field(kube, TUNING_RUNS, namespace, PROFILE_OF_RUN, profile)
    if are_going:
        return tuple(_parsed(TuningRun, r, is_going=True) for r in sorted(runs, key=age_order))
    return tuple(_parsed_once(r) for r in sorted(runs, key=age_order))


def _parsed_once(resource: Resource) -> TuningRun:
    if _is_active(resource):
        return parse_run(resource)
    version = resource["metadata"]["uid"], resource["metadata"]["resourceVersion"]
    run = _remembered.pop(version, None) or parse_run(resource)
    _remembered[version] = run
    if len(_remembered) > _MOST_REMEMBERED:
        del _remembered[next(iter(_remembered))]
    return run


def age_order(resource: Resource) -> tuple[datetime, str]:
    """Sorts older before younger; the name decides within one second."""
    metadata = resource["metadata"]
    return datetime.fromisoformat(metadata["creationTimestamp"]), metadata["name"]


async def read_older_profiles(kube: Kube, resource: Resource, target: TargetRef) -> tuple[str, ...]:
    """Names of the namespace's older profiles of the same workload, oldest first."""
    namespace = resource["metadata"]["namespace"]
    profiles = await _with_field(kube, SERVING_PROFILES, namespace, TARGET_OF_PROFILE, target.name)
    older = [p for p in profiles if age_order(p) < age_order(resource) and _same_target(p, target)]
    return tuple(p["metadata"]["name"] for p in sorted(older, key=age_order))


async def read_runs_ahead(kube: Kube, resource: Resource, target: TargetRef) -> tuple[str, ...]:
    """Active runs of the same workload that go first, older first: those that left Preflight, and older ones.

    Of two runs in Preflight exactly one is ahead of the other, so they never wait for each other.
    """
    namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
    profiles = await _with_field(kube, SERVING_PROFILES, namespace, TARGET_OF_PROFILE, target.name)
    names = [profile["metadata"]["name"] for profile in profiles if _same_target(profile, target)]
    runs = [run for each in names for run in await _with_field(kube, TUNING_RUNS, namespace, PROFILE_OF_RUN, each)]
    ahead = [
        run
        for run in runs
        if run["metadata"]["name"] != name
        and _is_active(run)
        and (_has_a_plan(run) or age_order(run) < age_order(resource))
    ]
    return tuple(run["metadata"]["name"] for run in sorted(ahead, key=age_order))


def _is_active(run: Resource) -> bool:
    return (run.get("status") or {}).get("step") != RunStep.DONE


def _has_a_plan(run: Resource) -> bool:
    return (run.get("status") or {}).get("plan") is not None


async def _with_field(kube: Kube, kind: Kind, namespace: str, field: tuple[str, ...], value: str) -> list[Resource]:
    """The objects of the namespace with this value there. The API server picks them where it can: a namespace may
    hold hundreds, with a long status each. Before Kubernetes 1.31, and with CRDs of an earlier version, it cannot.
    """
    try:
        found, _ = await list_page(kube, kind, namespace, fields=f"{'.'.join(field)}={value}")
    except Invalid:
        found = await kube.list(kind, namespace)
    return [each for each in found if value_at(each, field) == value]


def _same_target(profile: Resource, target: TargetRef) -> bool:
    ref = profile["spec"]["targetRef"]
    return (ref.get("apiVersion", "apps/v1"), ref["kind"], ref["name"]) == (
        target.api_version,
        target.kind,
        target.name,
    )


def _unreadable(kind: str, resource: Resource, error: ValidationError) -> UnreadableResource:
    fields = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
    name = resource.get("metadata", {}).get("name", "")
    return UnreadableResource(
        f"{kind} {name} does not fit this version of kneekeeper ({fields}). Run the version that wrote it, correct "
        "it, or delete it."
    )
