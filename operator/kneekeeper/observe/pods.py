"""From a pod as the API server gives it to the view that the plans read, and reads of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.live_delivery import delivery_in
from kneekeeper.domain.names import LABEL_ROLE
from kneekeeper.domain.observation import PodPhase, PodView
from kneekeeper.domain.redaction import redact
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Invalid, NotFound
from kneekeeper.kube.labels import LabelSelector
from kneekeeper.kube.resources import PODS, Resource
from kneekeeper.kube.targets import words_of

LOG_TAIL_LINES = 200
_CRASH_LOOP = "CrashLoopBackOff"
# Reasons of an ended container that say nothing more than its exit code does.
_PLAIN_ENDS = ("", "Error", "Completed")
_KUEUE = "kueue.x-k8s.io/"


def parse_pod(pod: Resource, container: str) -> PodView:
    """The pod with `container` as its engine; the log tail is empty, `read_pod` fills it.

    `waiting_reason` also tells why a pod or its engine ended where that is known: Evicted,
    DeadlineExceeded, OOMKilled. `exit_code` is that of the ended engine, or of its last run while it
    crash-loops; it is None while the engine runs.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    status = pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    engine = _engine_status(status, container)
    ended = _ended(engine)
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName") or "",
        ip=status.get("podIP") or "",
        phase=_phase(status),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=int(engine.get("restartCount", 0)),
        waiting_reason=_waiting_reason(status, engine, ended),
        exit_code=None if ended is None else int(ended.get("exitCode", 0)),
        unschedulable_message=_unschedulable(conditions, spec),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        words=_words(spec, container),
        image_id=engine.get("imageID") or "",
        log_tail="",
        image=_engine_spec(spec, container).get("image") or "",
        queued=any(gate.startswith(_KUEUE) for gate in _gates(spec)),
        delivery=delivery_in(spec),
    )


def _engine_status(status: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    statuses: list[Mapping[str, Any]] = status.get("containerStatuses") or []
    return next((s for s in statuses if s.get("name") == container), {})


def _ended(engine: Mapping[str, Any]) -> Mapping[str, Any] | None:
    state = engine.get("state") or {}
    if "terminated" in state:
        terminated: Mapping[str, Any] = state["terminated"]
        return terminated
    if "waiting" in state:
        last: Mapping[str, Any] | None = (engine.get("lastState") or {}).get("terminated")
        return last
    return None


def _phase(status: Mapping[str, Any]) -> PodPhase:
    phase = status.get("phase")
    # "Unknown" is what a lost node's pods had before Kubernetes 1.22; nothing is known to run then.
    return PodPhase(str(phase)) if phase in PodPhase.__members__.values() else PodPhase.PENDING


def _waiting_reason(status: Mapping[str, Any], engine: Mapping[str, Any], ended: Mapping[str, Any] | None) -> str:
    waiting = (engine.get("state") or {}).get("waiting") or {}
    why_ended = (ended or {}).get("reason") or ""
    if waiting.get("reason"):
        return str(waiting["reason"])
    if status.get("reason"):
        return str(status["reason"])
    return "" if why_ended in _PLAIN_ENDS else str(why_ended)


def _unschedulable(conditions: Mapping[str, Mapping[str, Any]], spec: Mapping[str, Any]) -> str:
    gates = _gates(spec)
    if gates:
        queued = any(gate.startswith(_KUEUE) for gate in gates)
        why = "; Kueue has not admitted it: see its Workload, and the quota of its ClusterQueue" if queued else ""
        return f"scheduling gates hold it back: {', '.join(gates)}{why}"
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""


def _gates(spec: Mapping[str, Any]) -> list[str]:
    return [str(gate["name"]) for gate in spec.get("schedulingGates") or []]


def _words(spec: Mapping[str, Any], container: str) -> ContainerWords:
    engine = _engine_spec(spec, container)
    return words_of(engine) if engine else ContainerWords()


def _engine_spec(spec: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    return next((c for c in spec["containers"] if c["name"] == container), {})


async def read_pod(kube: Kube, namespace: str, name: str, container: str) -> PodView | None:
    """The pod with the log of its engine, if that ended or keeps crashing; None when it does not exist."""
    try:
        pod = await kube.get(PODS, namespace, name)
    except NotFound:
        return None
    return await with_log_tail(kube, namespace, pod, container)


async def read_pods(kube: Kube, namespace: str, selector: LabelSelector, container: str) -> tuple[PodView, ...]:
    """The serving pods, by name, with logs as in `read_pod`. kneekeeper's own pods are left out."""
    pods = await kube.list(PODS, namespace, labels=str(selector))
    serving = [p for p in pods if LABEL_ROLE not in (p["metadata"].get("labels") or {})]
    serving.sort(key=lambda p: str(p["metadata"]["name"]))
    return tuple([await with_log_tail(kube, namespace, pod, container) for pod in serving])


async def with_log_tail(kube: Kube, namespace: str, pod: Resource, container: str) -> PodView:
    """The pod's view with the last lines of what failed in it: its engine, else its failed init container.

    Of an engine that ended and is being started again, they are those of its run before.
    """
    view = parse_pod(pod, container)
    failed_init = _failed_init_container(pod.get("status") or {})
    starts_again = view.exit_code is None and view.restarts > 0 and not view.ready
    if view.exit_code is None and failed_init is None and not starts_again:
        return view
    source = container if view.exit_code is not None or starts_again else failed_init
    previous = starts_again or (view.waiting_reason == _CRASH_LOOP and view.restarts > 0)
    try:
        text = await kube.pod_log(
            namespace, view.name, source or container, tail_lines=LOG_TAIL_LINES, previous=previous
        )
    except (NotFound, Invalid):
        # The node is gone or the container was removed: the exit code is all there is.
        return view
    return replace(view, log_tail=redact(text))


def _failed_init_container(status: Mapping[str, Any]) -> str | None:
    for init in status.get("initContainerStatuses") or []:
        terminated = (init.get("state") or {}).get("terminated") or (init.get("lastState") or {}).get("terminated")
        if terminated and terminated.get("exitCode") and not init.get("ready"):
            return str(init["name"])
    return None
