"""The tuned workload as an object of the API: its kind, its pod template, and its containers' words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.manifests import Path, value_at
from kneekeeper.domain.targets.kinds import TargetKind, is_unknown, known_kinds, target_kind, unknown_kind
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import Kind, Resource


class UnsupportedTarget(Exception):
    """The target can neither be read nor written; the message says what can."""


def kind_of(target: TargetRef) -> Kind:
    """Raises UnsupportedTarget for kinds that are not known."""
    found = described(target)
    group, _, version = target.api_version.rpartition("/")
    return Kind(group, version, found.plural, found.name)


def described(target: TargetRef) -> TargetKind:
    """Raises UnsupportedTarget for kinds that are not known."""
    found = target_kind(target.api_version, target.kind)
    if found is None:
        raise UnsupportedTarget(
            f"{target.api_version} {target.kind} is not supported; target one of {known_kinds()}. `kneekeeper patch` "
            "suggests changes for others."
        )
    return found


async def served_kind(kube: Kube, target: TargetRef) -> tuple[TargetKind, Kind] | None:
    """The kind and where it lies in this cluster; a custom kind that is not known is looked for there.

    None where the cluster does not serve that. Raises UnsupportedTarget for other kinds that are not known, and
    KubeErrors.
    """
    if not is_unknown(target.api_version, target.kind):
        return described(target), kind_of(target)
    try:
        served = await kube.read_json(f"/apis/{target.api_version}", {})
    except NotFound:
        return None
    for resource in served.get("resources") or []:
        if resource["kind"] == target.kind and resource["namespaced"] and "/" not in resource["name"]:
            group, _, version = target.api_version.rpartition("/")
            found = unknown_kind(target.api_version, target.kind, resource["name"])
            return found, Kind(group, version, found.plural, found.name)
    return None


def template_path(kind: TargetKind, workload: Resource) -> Path:
    """Where the template of the pods that serve stands. Raises UnsupportedTarget where there is none."""
    for path in kind.templates:
        if isinstance(value_at(workload, path), Mapping):
            return path
    reference = value_at(workload, ("spec", "workloadRef"))
    if isinstance(reference, Mapping):
        raise UnsupportedTarget(
            f"{kind.name} {workload['metadata']['name']} takes its pods from {reference.get('kind')} "
            f"{reference.get('name')}, which has no pods of its own: give the {kind.name} a spec.template."
        )
    raise UnsupportedTarget(f"{kind.name} {workload['metadata']['name']} has no pod template.")


def words_of(container: Mapping[str, Any]) -> ContainerWords:
    """Command and args; an empty list means the same as none, so both are None.

    Not validated: a container that no status could hold is read all the same, and `domain.target` refuses it.
    """
    return ContainerWords.model_construct(command=container.get("command") or None, args=container.get("args") or None)
