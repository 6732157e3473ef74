"""One workload of the soak: its profile, its users, its pods, and what happens to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kneekeeper.domain.names import LABEL_ROLE, ROLE_CLONE
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, PODS, SERVING_PROFILES, Resource
from tests.chaos.cluster import CONTAINER, Cluster
from tests.chaos.engines import setting_of
from tests.integration.place import make_profile
from tests.integration.serving import Serving, add_node
from tests.soak.engines import Scraped, SoakEngines, slowness_of
from tests.soak.law import slowness
from tests.soak.production import Production
from tests.soak.users import Lengths, Users
from tests.unit.kube_objects import template

NAME = "chat"
FEWEST_REPLICAS, MOST_REPLICAS = 2, 5
HISTORY_LIMIT = 3
"""Runs that a profile keeps."""

_STAGE_BEAT_S = 60.0
_LENGTHS = Lengths(prompt=200, output=60)
_ARGS = ("example/chat-8b", "--max-num-seqs=4", "--max-num-batched-tokens=2048")
_IMAGE = "vllm/vllm-openai:v0.32.0"
_SPEC: dict[str, Any] = {
    "slo": {"p99TTFT": "2500ms", "p99TPOT": "25ms"},
    "parameters": {"maxNumSeqs": {"min": 1, "max": 24}, "maxNumBatchedTokens": {"min": 1024, "max": 2048}},
    "updatePolicy": {"mode": "Apply", "verifyFor": "10m"},
    "runHistoryLimit": HISTORY_LIMIT,
}
_DECLARED = {
    "promptTokens": {"distribution": "LogNormal", "mean": _LENGTHS.prompt, "p99": 600},
    "outputTokens": {"distribution": "LogNormal", "mean": _LENGTHS.output, "p99": 180},
}
_WATCHED = ["Image", "Model", "Arguments", "Hardware", "Traffic", "SLOBreach"]


@dataclass(kw_only=True)
class Service(Cluster):
    """Every second one learns its workload from production; every fifth one has no spare GPU and lends a replica."""

    number: int
    engines: SoakEngines
    production: Production
    scraped: Scraped
    crash_next: bool = False
    """The next setting that is rolled out crashes."""
    changes: int = 0
    uids: set[str] = field(default_factory=set)
    """Of the profile and its runs as they were last seen."""
    _stage_told_s: float = -math.inf
    _reached: dict[str, str] = field(default_factory=dict)
    """Addresses by the uid of the pod."""

    @classmethod
    async def begun(cls, kube: Kube, engines: SoakEngines, number: int, addresses: Iterator[int]) -> Service:
        name = f"soak-{number}"
        lends = number % 5 == 4
        await add_node(kube, name, f"GPU-{name}", gpus=FEWEST_REPLICAS if lends else MOST_REPLICAS + 1)
        serving = await Serving.create(kube, name, name, port=8000)
        production = Production(
            users=Users(name, busiest_per_s=8.0 if lends else 14.0 + 7 * (number % 4)),
            lengths=_LENGTHS,
            setting=setting_of({"spec": {"containers": _containers()}}, CONTAINER),
            slow=slowness(_IMAGE, _ARGS[0]),
            replicas=FEWEST_REPLICAS,
        )
        service = cls(
            kube=kube,
            serving=serving,
            name=NAME,
            engines=engines,
            clock_s=engines.clock_s,
            addresses=addresses,
            number=number,
            production=production,
            scraped=Scraped(production),
        )
        await serving.deploy(NAME, 0, containers=_containers())
        await service.patch_workload("/spec/replicas", FEWEST_REPLICAS)
        await service.make_profile()
        return service

    @property
    def learns(self) -> bool:
        """Whether its workload is learned."""
        return self.number % 2 == 1

    @property
    def lends(self) -> bool:
        """Whether it has to lend a replica to be measured."""
        return self.number % 5 == 4

    def stage_is_news(self) -> bool:
        """Not while a stage goes on, but once a minute: a look at the run finds only that it goes on."""
        now_s = self.clock_s()
        if now_s < min(self.engines.stage_ends_s(self._reached.values()), self._stage_told_s + _STAGE_BEAT_S):
            return False
        self._stage_told_s = now_s
        return True

    async def make_profile(self) -> None:
        spec = {**_SPEC, "deletionPolicy": "Restore" if self.changes % 2 else "Keep"}
        if self.lends:
            spec["probe"] = {"allow": ["BorrowReplica"]}
        if self.learns:
            spec["metrics"] = {"prometheusRef": {"url": "http://prometheus.monitoring:9090"}}
            spec["retune"] = {"on": _WATCHED}
            spec["workload"] = None
        else:
            spec["workload"] = _DECLARED
        await make_profile(self.kube, self.namespace, NAME, **spec)

    async def patch_workload(self, path: str, value: object) -> None:
        operation = {"op": "replace", "path": path, "value": value}
        await self.kube.json_patch(DEPLOYMENTS, self.namespace, NAME, [operation])

    async def upgrade(self) -> None:
        """Another image; sometimes a tag that is older."""
        self.changes += 1
        await self.patch_workload("/spec/template/spec/containers/1/image", f"vllm/vllm-openai:v0.32.{self.changes}")

    async def change_model(self) -> None:
        self.changes += 1
        await self.patch_workload("/spec/template/spec/containers/1/args/0", f"example/chat-8b-{self.changes}")

    async def scale(self, replicas: int) -> None:
        if replicas != self.production.replicas and not self.lends:
            await self.patch_workload("/spec/replicas", replicas)

    async def scale_on_capacity(self) -> None:
        """As an autoscaler does it on the promised rate, an hour ahead; somebody scales the others by hand."""
        promise, users, now_s = self.production.promise, self.production.users, self.clock_s()
        if promise is not None and self.number % 2 == 0:
            most_per_s = max(users.rate(now_s + ahead_s) for ahead_s in range(0, 4500, 900))
            wanted = -(-most_per_s // (0.9 * promise.per_s))
            await self.scale(int(min(MOST_REPLICAS, max(FEWEST_REPLICAS, wanted))))

    async def set_spec(self, path: str, value: object) -> None:
        """Nothing where the profile is deleted just now."""
        operation = {"op": "add", "path": f"/spec/{path}", "value": value}
        with suppress(NotFound):
            await self.kube.json_patch(SERVING_PROFILES, self.namespace, NAME, [operation])

    async def delete_profile(self) -> None:
        with suppress(NotFound):
            await self.kube.delete(SERVING_PROFILES, self.namespace, NAME)

    async def evict_clone(self) -> None:
        for pod in await self.kube.list(PODS, self.namespace, labels=f"{LABEL_ROLE}={ROLE_CLONE}"):
            if pod["status"].get("phase") == "Running":
                pod["status"] |= {"phase": "Failed", "reason": "Evicted"}
                await self.kube.replace_status(PODS, self.namespace, pod["metadata"]["name"], pod)

    async def play(self) -> None:
        """Also: what serves, with which setting, and what is gone."""
        await super().play()
        deployment = await self.kube.get(DEPLOYMENTS, self.namespace, self.name)
        pods = await self.kube.list(PODS, self.namespace)
        there = {pod["metadata"]["uid"]: pod["status"].get("podIP", "") for pod in pods}
        for uid, address in [each for each in self._reached.items() if each[0] not in there]:
            self.engines.forget(address)
            self.engines.serving.pop(address, None)
            self.production.pods.pop(address, None)
            del self._reached[uid]
        self._reached |= {uid: address for uid, address in there.items() if address}
        serving = [pod for pod in pods if LABEL_ROLE not in (pod["metadata"].get("labels") or {})]
        well = [pod for pod in serving if pod["status"].get("conditions")]
        self.production.advance(self.clock_s())
        if well:
            self.production.setting = setting_of(well[-1], CONTAINER)
            self.production.slow = slowness_of(well[-1], CONTAINER)
        self.production.replicas = min(len(well), deployment["spec"]["replicas"])

    async def roll_out(self, deployment: Resource, pods: list[Resource]) -> None:
        """A setting that crashes gets no further than the first pod."""
        wanted = deployment["spec"]["template"]
        is_setting = bool(pods) and _engine(pods[0])["args"][0] == _engine(wanted)["args"][0]
        is_setting &= bool(pods) and _engine(pods[0])["args"] != _engine(wanted)["args"]
        if not (self.crash_next and is_setting):
            await super().roll_out(deployment, pods)
            return
        self.crash_next = False
        await self.kube.delete(PODS, self.namespace, pods[0]["metadata"]["name"], grace_period_s=0)
        made = await self.serving.make_pod(pods[0]["metadata"]["name"], wanted)
        crashing = {"name": CONTAINER, "image": _IMAGE, "imageID": "", "ready": False, "restartCount": 3}
        crashing["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        crashing["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
        await self.serving.set_pod_status(made, phase="Running", containerStatuses=[crashing])
        replicas = deployment["spec"]["replicas"]
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": 1,
            "readyReplicas": replicas - 1,
        }
        await self.kube.replace_status(DEPLOYMENTS, self.namespace, self.name, deployment)

    async def start_serving(self, name: str, pod_template: Resource) -> None:
        """At an address of its own."""
        made = await self.serving.make_pod(name, pod_template)
        address = self.next_address()
        self.production.advance(self.clock_s())
        self.production.pod_starts(address)
        self.engines.serving[address] = self.scraped
        where = {"podIP": address, "podIPs": [{"ip": address}]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.serving.set_pod_status(made, **ready, **where)


def _engine(pod: Resource) -> Resource:
    [engine] = [each for each in pod["spec"]["containers"] if each["name"] == CONTAINER]
    return dict(engine)


def _containers() -> list[Resource]:
    containers: list[Resource] = deepcopy(template()["spec"]["containers"])
    containers[1] |= {"args": list(_ARGS), "image": _IMAGE}
    return containers


def all_addresses() -> Iterator[int]:
    """For all services together; the first of the loopback network are others'."""
    return itertools.count(256)
