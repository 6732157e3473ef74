"""kneekeeper's own resources as models, read strictly: what the CRD let in must be understood."""

from __future__ import annotations

from datetime import datetime

from pydantic import ValidationError

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


class UnreadableResource(Exception):
    """A stored resource does not fit this version's models, for example after a downgrade."""


def parse_profile(resource: Resource) -> ServingProfile:
    """Raises UnreadableResource with the fields that do not fit."""
    try:
        return ServingProfile.model_validate(_known_parts(resource))
    except ValidationError as error:
        raise _unreadable("ServingProfile", resource, error) from error


def parse_run(resource: Resource) -> TuningRun:
    """Raises UnreadableResource with the fields that do not fit."""
    try:
        return TuningRun.model_validate(_known_parts(resource))
    except ValidationError as error:
        raise _unreadable("TuningRun", resource, error) from error


async def read_profile(kube: Kube, namespace: str, name: str) -> ServingProfile | None:
    """The profile, None when it does not exist. Raises UnreadableResource."""
    try:
        return parse_profile(await kube.get(SERVING_PROFILES, namespace, name))
    except NotFound:
        return None


async def read_runs_of(kube: Kube, namespace: str, profile: str) -> tuple[TuningRun, ...]:
    """The profile's runs, oldest first. Raises UnreadableResource."""
    runs = await _with_field(kube, TUNING_RUNS, namespace, PROFILE_OF_RUN, profile)
    return tuple(parse_run(r) for r in sorted(runs, key=age_order))


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


def _known_parts(resource: Resource) -> Resource:
    return {part: resource.get(part) or {} for part in ("metadata", "spec", "status")}


def _unreadable(kind: str, resource: Resource, error: ValidationError) -> UnreadableResource:
    fields = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
    name = resource.get("metadata", {}).get("name", "")
    return UnreadableResource(
        f"{kind} {name} does not fit this version of kneekeeper ({fields}). Install the CRDs of this version, "
        "then correct or recreate it."
    )
