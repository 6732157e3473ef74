"""Why a workload's pod cannot be cloned without harm: looked for before a run starts and before each clone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kneekeeper.domain.names import LABEL_ROLE, LABEL_RUN
from kneekeeper.domain.observation import Obstacle, ObstacleReason, WorkloadView
from kneekeeper.kube.children import clone_labels
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import VOLUME_CLAIMS
from kneekeeper.kube.selectors import Selectors, clone_is_selected, read_selectors

_SINGLE_WRITER_MODES = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})

AccessModes = Mapping[str, frozenset[str]]
"""Access modes of the namespace's PersistentVolumeClaims by name."""


async def read_clone_obstacle(kube: Kube, workload: WorkloadView, run: str, keep: Collection[str]) -> Obstacle | None:
    """The first obstacle to a clone that keeps these labels; None when nothing speaks against it.

    A claim that does not exist yet keeps the clone pending, as it does the serving pods. Raises KubeErrors.
    """
    template = workload.pod_template
    modes: dict[str, frozenset[str]] = {}
    for _, name in _claims(template["spec"]):
        try:
            claim = await kube.get(VOLUME_CLAIMS, workload.namespace, name)
        except NotFound:
            continue
        modes[name] = frozenset(claim["spec"].get("accessModes") or ())
    labels = clone_labels(run, (template.get("metadata") or {}).get("labels") or {}, keep)
    return clone_obstacle(template["spec"], modes, labels, await read_selectors(kube, workload.namespace))


def clone_obstacle(
    pod_spec: Mapping[str, Any], access_modes: AccessModes, labels: Mapping[str, str], selectors: Selectors
) -> Obstacle | None:
    """The first obstacle to a copy of this pod with these labels. Pure."""
    for obstacle in (
        _shared_device(pod_spec),
        _single_writer(pod_spec, access_modes),
        _volume_of_each_pod(pod_spec),
        _selected(labels, selectors),
    ):
        if obstacle is not None:
            return obstacle
    return None


def _claims(pod_spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in pod_spec.get("volumes") or []:
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            yield volume["name"], claim["claimName"]


def _single_writer(pod_spec: Mapping[str, Any], access_modes: AccessModes) -> Obstacle | None:
    for volume, claim in _claims(pod_spec):
        modes = access_modes.get(claim, frozenset())
        if modes and modes <= _SINGLE_WRITER_MODES:
            return Obstacle(
                ObstacleReason.SINGLE_WRITER_VOLUME,
                f"Volume {volume} is PersistentVolumeClaim {claim} with {', '.join(sorted(modes))}: a clone on "
                "another node could not mount it, or would keep a serving pod from it. Use a ReadOnlyMany or "
                "ReadWriteMany claim for the model.",
            )
    return None


def _volume_of_each_pod(pod_spec: Mapping[str, Any]) -> Obstacle | None:
    """Mounts that name no volume of the template: a StatefulSet gives each pod a claim of its own."""
    volumes = {volume["name"] for volume in pod_spec.get("volumes") or []}
    for container in pod_spec.get("containers") or []:
        for mount in container.get("volumeMounts") or []:
            if mount["name"] not in volumes:
                return Obstacle(
                    ObstacleReason.SINGLE_WRITER_VOLUME,
                    f"Volume {mount['name']} comes from volumeClaimTemplates, so each pod has its own and a clone has "
                    "none. Mount the model from a ReadOnlyMany or ReadWriteMany claim instead.",
                )
    return None


def _shared_device(pod_spec: Mapping[str, Any]) -> Obstacle | None:
    for claim in pod_spec.get("resourceClaims") or []:
        if claim.get("resourceClaimName"):
            return Obstacle(
                ObstacleReason.SHARED_DEVICE,
                f"ResourceClaim {claim['resourceClaimName']} is used by name: a clone would share the devices of "
                "the serving pods. Use a resourceClaimTemplateName.",
            )
    return None


def _selected(labels: Mapping[str, str], selectors: Selectors) -> Obstacle | None:
    """Without kept labels a clone is found only by an empty selector; with them, kinds that may not be read
    leave the proof open."""
    selected_by = clone_is_selected(labels, selectors.known)
    if selected_by:
        return Obstacle(
            ObstacleReason.CLONE_IS_SELECTED,
            f"The clone would be selected by {', '.join(selected_by)}, and so get traffic or be counted. Take the "
            "label that they select by off spec.probe.clone.keep, or give them a selector that is not empty.",
        )
    kept = sorted(labels.keys() - {LABEL_RUN, LABEL_ROLE})
    if kept and selectors.unknown:
        return Obstacle(
            ObstacleReason.SELECTORS_UNKNOWN,
            f"Whether {', '.join(selectors.unknown)} objects would select the clone by {', '.join(kept)} is not "
            "known, since the operator may not list them. Allow it to, or take the labels off "
            "spec.probe.clone.keep.",
        )
    return None
