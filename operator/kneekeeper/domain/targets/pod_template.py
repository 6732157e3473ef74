"""Kinds with a pod template of their own.

Deployment, StatefulSet, DaemonSet, Argo Rollout, Knative Service and LeaderWorkerSet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kneekeeper.domain.arguments import Content, Refusal, RefusalReason, Rewrite
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.containers import Container, containers_of, edits_of_container, is_no_engine
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome, rewriting
from kneekeeper.domain.targets.warnings import warnings_of_pod

_TEMPLATE: Path = ("spec", "template", "spec")
_LEADER: Path = ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec")
_WORKER: Path = ("spec", "leaderWorkerTemplate", "workerTemplate", "spec")

POD_SPECS: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("apps", "Deployment"): (_TEMPLATE,),
    ("apps", "StatefulSet"): (_TEMPLATE,),
    ("apps", "DaemonSet"): (_TEMPLATE,),
    ("argoproj.io", "Rollout"): (_TEMPLATE,),
    ("serving.knative.dev", "Service"): (_TEMPLATE,),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (_LEADER, _WORKER),
}
"""Where the pod's spec stands. Of several, all that run vLLM are changed together: they are one engine."""

_RELATED = ("SEQS", "BATCHED", "ARGS", "VLLM")


@dataclass(frozen=True)
class Found:
    """A container and where it stands."""

    at: Path
    pod_spec: Mapping[str, Any]
    raw: Mapping[str, Any]
    container: Container
    engine: Engine | Refusal


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [found.engine for found in found_in(target, objects, _paths(target)) if not is_no_engine(found.engine)]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    reference = value_at(target.value, ("spec", "workloadRef"))
    if isinstance(reference, Mapping):
        message = f"The pods come from {reference.get('kind')} {reference.get('name')}. Name it as the target."
        return Answer(Outcome.RECOMMEND_ONLY, "WorkloadReferenced", message)
    return propose_in(target, objects, asked, _paths(target))


def propose_in(target: ManifestObject, objects: Objects, asked: Asked, paths: Sequence[Path]) -> Answer:
    """The same for pod specs at `paths`."""
    chosen = _chosen(found_in(target, objects, paths), asked)
    if isinstance(chosen, Answer):
        return chosen
    edits: list[Edit] = []
    warnings: list[str] = []
    for found in chosen:
        assert isinstance(found.engine, Engine)  # refusals were answered
        result = found.container.rewritten(asked.setting, asked.variables)
        if isinstance(result, Refusal):
            return Answer.refused(result, found.container.name, found.engine)
        assert isinstance(result, Rewrite)
        edits += edits_of_container(target, found.raw, found.at, result)
        warnings += warnings_of_pod(target, found.pod_spec, found.raw, found.engine, asked.setting)
        warnings += [_silenced(name, result, target) for name in result.silenced]
    first = chosen[0].engine
    assert isinstance(first, Engine)
    return rewriting(first, edits, list(dict.fromkeys(warnings)))


def _silenced(name: str, result: Rewrite, target: ManifestObject) -> str:
    words = " ".join((*(result.command or ()), *(result.args or ())))
    if re.search(rf"\$[({{]?{re.escape(name)}\b", words):
        return f"{name} no longer sets a limit of {target.name}; other words of it still use it"
    return f"{name} no longer has an effect on {target.name}"


def _paths(target: ManifestObject) -> tuple[Path, ...]:
    return POD_SPECS[target.api_group, target.kind]


def found_in(target: ManifestObject, objects: Objects, paths: Sequence[Path]) -> list[Found]:
    """All main containers under `paths`."""
    found: list[Found] = []
    for path in paths:
        pod_spec = value_at(target.value, path)
        if not isinstance(pod_spec, Mapping) or not isinstance(pod_spec.get("containers"), list):
            continue
        for index, container in enumerate(containers_of(pod_spec, target.namespace, objects, _added(target))):
            raw = pod_spec["containers"][index]
            found.append(Found((*path, "containers", index), pod_spec, raw, container, container.engine()))
    return found


def _added(target: ManifestObject) -> Mapping[str, str | Content]:
    """Variables that the kind's controller sets in each container. Source: LWS, "Environment variables"."""
    if target.kind != "LeaderWorkerSet":
        return {}
    size = value_at(target.value, ("spec", "leaderWorkerTemplate", "size"))
    return {
        "LWS_GROUP_SIZE": str(size) if isinstance(size, int) else Content.ONE_WORD,
        "LWS_LEADER_ADDRESS": Content.ONE_WORD,
        "LWS_WORKER_INDEX": Content.ONE_WORD,
    }


def _chosen(found: Sequence[Found], asked: Asked) -> list[Found] | Answer:
    names = ", ".join(dict.fromkeys(f.container.name for f in found))
    if asked.part is not None:
        found = [f for f in found if f.container.name == asked.part]
        if not found:
            message = f"There is no container {asked.part!r}. Name one of: {names or 'none'}."
            return Answer(Outcome.REFUSE, "ContainerNotFound", message, asked.part)
    candidates = [f for f in found if not is_no_engine(f.engine)] or list(found)
    parts = list(dict.fromkeys(f.container.name for f in candidates))
    if len(parts) > 1 and any(not is_no_engine(f.engine) for f in candidates):
        message = f"Several containers run vLLM: {', '.join(parts)}. Name one of them as the container."
        return Answer(Outcome.REFUSE, "SeveralEngineContainers", message)
    for f in candidates:
        if isinstance(f.engine, Refusal):
            return _refused(f, f.engine)
    if not candidates:
        return Answer(Outcome.REFUSE, "NoContainer", "The object has no containers. Name another target.")
    return candidates


def _refused(found: Found, refusal: Refusal) -> Answer:
    name = found.container.name
    if refusal.reason is RefusalReason.SCRIPT_FILE:
        return Answer(Outcome.RECOMMEND_ONLY, refusal.reason, f"{refusal.message}{_script(found)}", name)
    related = [variable for variable in found.container.env if any(mark in variable.upper() for mark in _RELATED)]
    if refusal.reason is RefusalReason.ENTRYPOINT_UNKNOWN and related:
        message = (
            f"{refusal.message} Variables that look related, by what the image may make of them: {', '.join(related)}."
        )
        return Answer(Outcome.REFUSE, refusal.reason, message, name)
    return Answer.refused(refusal, name)


def _script(found: Found) -> str:
    words = [*(found.container.command or ()), *(found.container.args or ())]
    path = next((word for word in words if word in found.container.files), None)
    return f" The file {path} comes from a ConfigMap of the pod; its change restarts no pod." if path else ""
