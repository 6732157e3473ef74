"""The pod under test: a copy of the workload's pod that no user's traffic, scraper or controller finds.

Kept of the template's pod: everything that the engine's speed or start depends on: volumes, init containers,
native sidecars (init containers that go on running: others may wait for them), node selectors, node
affinity, tolerations, runtime class, image pull secrets, security contexts, DNS, resources, environment.

Left off, each with its reason:
- labels and annotations, but those whose keys the user lists: Services, monitors and routers select by them;
- containers beside the engine: exporters and routing sidecars would announce the clone, or scrape it;
- host ports and the host's network: clients of production reach those;
- liveness and startup probes: a slow start or a full load is what is measured, not a reason to kill;
- lifecycle hooks: they register pods with routers, or delay the end;
- pod affinity, anti-affinity and topology spread: they are rules among the serving pods;
- host name, subdomain, readiness gates and scheduling gates: others act on them;
- the template's priority: production comes first;
- Service links: a Service named `vllm` sets VLLM_PORT to a URL, and the engine dies of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from kneekeeper.actuate.plugin_delivery import with_clones_plugin
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import Scheme
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.actions import EnsureClone
from kneekeeper.domain.names import clone_name
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.kube.children import clone_labels, owner_reference
from kneekeeper.kube.gpus import PRODUCT_LABELS
from kneekeeper.kube.resources import PODS, TUNING_RUNS, Resource

GRACE_PERIOD_S = 10
"""The engine holds nothing that must be saved, and its GPU is wanted."""

READINESS = {"periodSeconds": 5, "timeoutSeconds": 10, "failureThreshold": 30, "successThreshold": 1}
"""An overloaded engine answers late and is still the one under test; nothing routes by this probe."""

HEALTH_PATH = "/health"

_LEFT_OFF = (
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "enableServiceLinks",
    "hostNetwork",
    "hostname",
    "hostnameOverride",
    "initContainers",
    "nodeName",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "readinessGates",
    "restartPolicy",
    "schedulingGates",
    "setHostnameAsFQDN",
    "subdomain",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


class ContainerGone(Exception):
    """The workload has no such container any more; a new run follows."""


def build_clone(workload: WorkloadView, run: TuningRun, action: EnsureClone, settings: ActuateSettings) -> Resource:
    """The clone's manifest. The run's plan names the GPU product that the clone is bound to.

    Whether a copy does no harm is for `kube.clone_obstacles` to say. Raises ContainerGone, and ValueError for
    a run without plan.
    """
    plan = run.status.plan
    if plan is None:
        raise ValueError("a clone is built for a run whose Preflight has stored its plan")
    template = workload.pod_template
    spec = template["spec"]
    metadata = template.get("metadata") or {}
    keep = frozenset(plan.profile_spec.probe.clone.keep)
    name = run.metadata["name"]
    kept = {key: deepcopy(value) for key, value in spec.items() if key not in _LEFT_OFF}
    pod_spec = kept | {
        "initContainers": [_init_container(c) for c in spec.get("initContainers") or []],
        "containers": [_engine(_container(workload, action.container), action.words, plan)],
        "activeDeadlineSeconds": action.deadline_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": settings.priority_class,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_PERIOD_S,
        "affinity": {"nodeAffinity": _node_affinity(spec, plan.gpu_product)},
    }
    if action.live_tuning is LiveTuning.ALLOWED:
        view = next(c for c in workload.containers if c.name == action.container)
        pod_spec = with_clones_plugin(pod_spec, view.env, name, settings)
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k in keep}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.name,
        "metadata": {
            "name": clone_name(name, action.start),
            "namespace": workload.namespace,
            "labels": clone_labels(name, metadata.get("labels") or {}, keep),
            "annotations": annotations,
            "ownerReferences": [owner_reference(TUNING_RUNS, run.metadata)],
        },
        "spec": pod_spec,
    }


def _container(workload: WorkloadView, name: str) -> Mapping[str, Any]:
    containers: list[Mapping[str, Any]] = workload.pod_template["spec"]["containers"]
    found = next((c for c in containers if c["name"] == name), None)
    if found is None:
        raise ContainerGone(f"{workload.kind} {workload.name} has no container {name} any more; a new run follows.")
    return found


def _engine(container: Mapping[str, Any], words: ContainerWords, plan: RunPlan) -> Resource:
    left_off = (*_PROBES, "lifecycle", "command", "args")
    engine = _without_host_ports({k: deepcopy(v) for k, v in container.items() if k not in left_off})
    # Without any probe of its own the pod would be Ready before the engine has loaded its model.
    probe = container.get("readinessProbe") or container.get("startupProbe") or _health_probe(plan)
    engine["readinessProbe"] = deepcopy(probe) | READINESS
    engine["readinessProbe"].pop("terminationGracePeriodSeconds", None)
    if words.command is not None:
        engine["command"] = list(words.command)
    if words.args is not None:
        engine["args"] = list(words.args)
    return engine


def _health_probe(plan: RunPlan) -> Resource:
    get: Resource = {"path": HEALTH_PATH, "port": plan.port}
    if plan.scheme is Scheme.HTTPS:
        get["scheme"] = "HTTPS"
    return {"httpGet": get}


def _init_container(container: Mapping[str, Any]) -> Resource:
    """A native sidecar keeps its startup probe, which orders the start; its health is not what is measured."""
    left_off = ("livenessProbe", "readinessProbe", "lifecycle")
    return _without_host_ports({k: deepcopy(v) for k, v in container.items() if k not in left_off})


def _without_host_ports(container: Resource) -> Resource:
    if "ports" in container:
        host = ("hostPort", "hostIP")
        container["ports"] = [{k: v for k, v in p.items() if k not in host} for p in container["ports"]]
    return container


def _node_affinity(spec: Mapping[str, Any], gpu_product: str) -> Resource:
    """The template's node affinity, and the GPU product of the serving pods under whichever label names it.

    Terms of a required node affinity are alternatives, so each of the template's is joined with each label.
    """
    affinity: Resource = deepcopy((spec.get("affinity") or {}).get("nodeAffinity") or {})
    products = [product for product in gpu_product.split(",") if product]
    if not products:
        return affinity
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    bound = [
        term
        | {
            "matchExpressions": [
                *(term.get("matchExpressions") or []),
                {"key": label, "operator": "In", "values": products},
            ]
        }
        for term in terms
        for label in PRODUCT_LABELS
    ]
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": bound}
    return affinity
