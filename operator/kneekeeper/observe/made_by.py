"""Targets whose controllers make the workload: the workload is read for what runs, the target for what is declared."""

from __future__ import annotations

from dataclasses import replace

from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.manifests import ManifestObject, value_at
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.domain.targets import Objects
from kneekeeper.domain.targets.kinds import POD, TargetKind
from kneekeeper.domain.targets.ownership import owner_of
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.resources import CLUSTER_SERVING_RUNTIMES, CONFIG_MAPS, PODS, SERVING_RUNTIMES, Kind, Resource
from kneekeeper.kube.targets import UnsupportedTarget, described, kind_of
from kneekeeper.observe.field_managers import last_writer_of_spec
from kneekeeper.observe.made_pods import workload_of_pods
from kneekeeper.observe.workloads import DEPLOYMENT


async def read_made(kube: Kube, namespace: str, target: Resource, kind: TargetKind) -> tuple[Resource, TargetKind]:
    """The one workload with an engine that the target's controller made.

    Raises UnsupportedTarget where there is none, or several, such as prefill and decode.
    """
    title = f"{kind.name} {target['metadata']['name']}"
    uid, found = target["metadata"]["uid"], []
    if POD in kind.makes:
        pods = [pod for pod in await kube.list(PODS, namespace) if _is_made_by(pod, uid) and not _is_going(pod)]
        if not pods:
            raise UnsupportedTarget(f"{title} has no pod from which its engine can be read. Let it run one replica.")
        return {"kind": DEPLOYMENT.name, **workload_of_pods(target, pods)}, DEPLOYMENT
    for api_version, name in kind.makes:
        ref = TargetRef(api_version=api_version, kind=name, name="any")
        try:
            workloads = await kube.list(kind_of(ref), namespace)
        except NotFound:
            continue
        found += [({**workload, "kind": name}, described(ref)) for workload in workloads if _is_made_by(workload, uid)]
    if not found:
        kinds = " or ".join(name for _, name in kind.makes)
        raise UnsupportedTarget(f"No {kinds} of {title} was found. Wait for its controller, or see its status.")
    if len(found) > 1:
        names = ", ".join(f"{made.name} {workload['metadata']['name']}" for workload, made in found)
        raise UnsupportedTarget(
            f"{title} makes several workloads, each with limits of its own: {names}. Name the one that you mean as "
            "the target; it is measured, and the change recommended."
        )
    return found[0]


def _is_made_by(workload: Resource, uid: str) -> bool:
    references = workload["metadata"].get("ownerReferences") or []
    return any(reference.get("controller") and reference.get("uid") == uid for reference in references)


def _is_going(pod: Resource) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def read_source(kube: Kube, namespace: str, target: Resource) -> Objects:
    """The target, and what it names that helps to read its arguments, as far as that may be read."""
    wanted: list[tuple[Kind, str, str]] = []
    runtime = value_at(target, ("spec", "predictor", "model", "runtime"))
    if isinstance(runtime, str):
        wanted += [(SERVING_RUNTIMES, namespace, runtime), (CLUSTER_SERVING_RUNTIMES, "", runtime)]
    config = value_at(target, ("inference", "config"))
    if isinstance(config, str):
        wanted.append((CONFIG_MAPS, namespace, config))
    objects = [target]
    for kind, where, name in wanted:
        try:
            objects.append({"apiVersion": kind.api_version, **await kube.get(kind, where, name), "kind": kind.name})
        except (NotFound, Forbidden):
            continue
    return Objects(tuple(ManifestObject(0, (), each) for each in objects))


def as_declared_by(view: WorkloadView, target: Resource, kind: TargetKind, source: Objects) -> WorkloadView:
    """The workload under its target's name: what runs is the workload's, what is written and by whom the target's."""
    metadata = target["metadata"]
    return replace(
        view,
        kind=kind.name,
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=int(metadata.get("generation", 0)),
        # What the controller has observed is told by what it made; see `recognised_workload`.
        observed_generation=int(metadata.get("generation", 0)) if view.observed_generation >= view.generation else 0,
        owner=owner_of(metadata),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        resource=kind.resource,
        last_writer=last_writer_of_spec(metadata),
        source=source,
        made_by_controller=True,
    )
