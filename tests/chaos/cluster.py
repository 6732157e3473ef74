"""The kubelet, the scheduler and the controllers of a life, played at a real API server that runs none of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kneekeeper.domain.names import LABEL_ROLE, LABEL_RUN, ROLE_AGENT, ROLE_CLONE
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, NODES, PODS, SECRETS, Kind, Resource
from kneekeeper.observe.run_reads import ANNOTATION_INDEX
from tests.chaos.engines import Engines
from tests.integration.serving import Serving

CONTAINER = "vllm"
CLONE_STARTS_S = 5.0
AGENT_STARTS_S = 3.0
_READY = [{"type": "Ready", "status": "True"}]


@dataclass
class Cluster:
    """One namespace; `play` does what is due."""

    kube: Kube
    serving: Serving
    name: str
    """Of the Deployment."""
    engines: Engines
    clock_s: Callable[[], float]
    clones_start: bool = True
    addresses: Iterator[int] = field(default_factory=lambda: itertools.count(2))
    """Of pods, in turn; no two of what the same engines answer for are alike."""
    next_s: float = math.inf
    """When a pod starts or ends by itself."""
    made: dict[str, str] = field(default_factory=dict)
    """The uid of every child pod that was ever seen, by name."""
    made_twice: list[str] = field(default_factory=list)
    _seen_s: dict[str, float] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.serving.namespace

    async def play(self) -> None:
        """Pods start and end, Jobs get their pods, the Deployment rolls out."""
        self.next_s = math.inf
        pods = await self.kube.list(PODS, self.namespace)
        jobs = {job["metadata"]["name"]: job for job in await self.kube.list(JOBS, self.namespace)}
        agents = [pod for pod in pods if _role(pod) == ROLE_AGENT]
        for pod in agents:
            if pod["metadata"]["name"].removesuffix("-0") not in jobs:
                await self._delete(PODS, pod)
                pods.remove(pod)
        for name, job in jobs.items():
            if f"{name}-0" not in {pod["metadata"]["name"] for pod in agents}:
                await self._make_agent(job)
        for pod in pods:
            if _role(pod) == ROLE_CLONE:
                await self._start_clone(pod)
            elif _role(pod) == ROLE_AGENT and _is_new(pod) and self._has_lasted(pod, AGENT_STARTS_S):
                await self._ready(pod)
        deployment = await self.kube.get(DEPLOYMENTS, self.namespace, self.name)
        if deployment["metadata"]["generation"] != deployment.get("status", {}).get("observedGeneration"):
            await self.roll_out(deployment, [pod for pod in pods if not _role(pod)])

    async def left_behind(self) -> list[str]:
        """Children of runs that hold something of others; the evidence of a run stays with it."""
        found = [
            f"{kind.name} {each['metadata']['name']}"
            for kind in (PODS, JOBS, SECRETS)
            for each in await self.kube.list(kind, self.namespace, labels=LABEL_RUN)
        ]
        return sorted(found)

    async def die(self, role: str) -> None:
        """The pods of this role are gone, and what they had in memory."""
        for pod in await self.kube.list(PODS, self.namespace, labels=f"{LABEL_ROLE}={role}"):
            self.engines.forget(pod["status"].get("podIP", ""))
            await self._delete(PODS, pod)

    async def collect(self, uids: set[str]) -> None:
        """As the garbage collector does it: what belongs to an owner that is none of these goes."""
        for kind in (PODS, JOBS, SECRETS, CONFIG_MAPS):
            for each in await self.kube.list(kind, self.namespace):
                owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or []]
                if owners and not uids.intersection(owners):
                    await self._delete(kind, each)

    async def end(self) -> None:
        """The node and all pods go, so that the next life finds an empty cluster."""
        for pod in await self.kube.list(PODS, self.namespace):
            await self._delete(PODS, pod)
        await self.kube.delete(NODES, "", self.serving.node)

    async def _make_agent(self, job: Resource) -> None:
        template = job["spec"]["template"]
        metadata = {
            "name": f"{job['metadata']['name']}-0",
            "labels": template["metadata"]["labels"],
            "annotations": {ANNOTATION_INDEX: "0"},
        }
        made = await self.kube.create(PODS, self.namespace, {"metadata": metadata, "spec": template["spec"]})
        self._remember(made)

    async def _start_clone(self, pod: Resource) -> None:
        self._remember(pod)
        if not _is_new(pod) or not self._has_lasted(pod, CLONE_STARTS_S):
            return
        if self.clones_start:
            await self._ready(pod)
            return
        ended = {"name": CONTAINER, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        ended["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
        await self.serving.set_pod_status(pod, phase="Failed", containerStatuses=[ended])

    async def _ready(self, pod: Resource) -> None:
        ip = self.next_address()
        if _role(pod) == ROLE_CLONE:
            self.engines.clone_starts(ip, pod, CONTAINER)
        pod["status"] |= {"phase": "Running", "conditions": _READY, "podIP": ip, "podIPs": [{"ip": ip}]}
        await self.kube.replace_status(PODS, self.namespace, pod["metadata"]["name"], pod)

    async def roll_out(self, deployment: Resource, pods: list[Resource]) -> None:
        """All its pods are as it wants them, at once."""
        template = deployment["spec"]["template"]
        wanted = [f"{self.name}-{number}" for number in range(deployment["spec"]["replicas"])]
        kept = [pod for pod in pods if pod["metadata"]["name"] in wanted and _words(pod) == _words(template)]
        for pod in pods:
            if pod not in kept:
                await self._delete(PODS, pod)
        for name in wanted:
            if name not in {pod["metadata"]["name"] for pod in kept}:
                await self.start_serving(name, template)
        await self.serving.roll_out(self.name)

    async def start_serving(self, name: str, pod_template: Resource) -> None:
        """A pod of the Deployment, which is ready at once."""
        await self.serving.run_pod(name, pod_template)

    def next_address(self) -> str:
        """One that no pod has had."""
        number = next(self.addresses)
        return f"127.{number // 65536}.{number // 256 % 256}.{number % 256}"

    def _remember(self, pod: Resource) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if self.made.setdefault(name, uid) != uid:
            self.made_twice.append(name)
            self.made[name] = uid

    def _has_lasted(self, pod: Resource, seconds: float) -> bool:
        until_s = self._seen_s.setdefault(pod["metadata"]["uid"], self.clock_s()) + seconds
        if self.clock_s() < until_s:
            self.next_s = min(self.next_s, until_s)
        return self.clock_s() >= until_s

    async def _delete(self, kind: Kind, each: Resource) -> None:
        try:
            await self.kube.delete(kind, self.namespace, each["metadata"]["name"], grace_period_s=0)
        except NotFound:
            return


def _role(pod: Resource) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_ROLE, ""))


def _words(pod: Resource) -> list[tuple[str, str, list[str] | None]]:
    return [(each["name"], each["image"], each.get("args")) for each in pod["spec"]["containers"]]


def _is_new(pod: Resource) -> bool:
    return pod["status"].get("phase") in (None, "Pending")
