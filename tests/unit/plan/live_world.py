"""The world with a whole Deployment, whose template is written field by field, and pods that follow a ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self, cast

from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.domain import actions as act
from kneekeeper.domain.live_delivery import LIMITS_KEY, PluginImage, delivery_in
from kneekeeper.domain.live_fields import limits_as_text
from kneekeeper.domain.live_production import pods_in_force, setting_in
from kneekeeper.domain.live_settings import limits_of
from kneekeeper.domain.observation import PodView, ProfileObservation, Unreachable, WorkloadView
from kneekeeper.domain.targets.fields import by_object, json_patch, stand_as, stand_as_before
from kneekeeper.livetune.limits import Envelope, Standing
from kneekeeper.livetune.messages import PROTOCOL, Report
from kneekeeper.observe.workloads import parse_workload
from tests.unit.plan.circumstances import ROLLOUT_S
from tests.unit.plan.world import PROFILE_SPEC, World

KUBELET_S = 45.0
"""Until a pod's file says what its ConfigMap says."""

ALLOWED: dict[str, Any] = {"mode": "Apply", "verifyFor": "1m", "liveChanges": "Allowed"}
LIVE_SPEC: dict[str, Any] = PROFILE_SPEC | {"updatePolicy": ALLOWED}
IMAGE = PluginImage("registry.example.com/kneekeeper:1", pull_secrets=("ours",))

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "chat"}},
    "spec": {
        "containers": [
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.32.0",
                "command": ["vllm"],
                "args": [],
                "env": [{"name": "HF_HOME", "value": "/models"}, {"name": "PASSWORD", "value": "hunter2"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ]
    },
}


@dataclass
class LiveWorld(World):
    """`plugin_says` is what the production pods' plugins say instead of the truth."""

    spec: dict[str, Any] = field(default_factory=lambda: dict(LIVE_SPEC))
    plugin_says: Report | Unreachable | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.template: dict[str, Any] = deepcopy(TEMPLATE)
        self.engine["args"] = list(self.args)
        self.original = deepcopy(self.template)
        self.served = deepcopy(self.template)
        self.maps: dict[str, list[tuple[datetime, str]]] = {}  # what each ConfigMap said, and since when
        self.template_writes = 0

    def forked(self) -> Self:
        other = super().forked()
        for name in ("template", "original", "served", "maps"):
            setattr(other, name, deepcopy(getattr(self, name)))
        return cast(Self, other)

    @property
    def engine(self) -> dict[str, Any]:
        found: dict[str, Any] = self.template["spec"]["containers"][0]
        return found

    def set_args(self, args: list[str], *, writer: str = "kubectl") -> None:
        self._settle_pods()
        self.engine["args"] = list(args)
        super().set_args(args, writer=writer)

    def set_limits_map(self, text: str | None, name: str = "chat-limits") -> None:
        if text is None:
            self.maps.pop(name, None)
        else:
            self.maps.setdefault(name, []).append((self.now, text))

    def limits_map(self, name: str = "chat-limits") -> str | None:
        return self.maps[name][-1][1] if self.maps.get(name) else None

    def _objects(self) -> list[dict[str, Any]]:
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "chat",
                "namespace": "prod",
                "uid": "uid-workload",
                "resourceVersion": str(self.generation),
                "generation": self.generation,
            },
            "spec": {"replicas": self.replicas, "template": self.template},
        }
        maps = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "prod"},
                "data": {LIMITS_KEY: said[-1][1]},
            }
            for name, said in self.maps.items()
        ]
        return [deployment, *maps]

    def workload(self) -> WorkloadView | None:
        seen = super().workload()
        if seen is None:
            return None
        self._settle_pods()
        objects = deepcopy(self._objects())
        view = parse_workload(objects[0], objects[1:])
        containers = tuple(
            replace(c, image=self.image, env=c.env if self.environment == {} else self.environment, gpus=self.gpus)
            for c in view.containers
        )
        return replace(
            view,
            containers=containers,
            observed_generation=seen.observed_generation,
            updated_replicas=seen.updated_replicas,
            ready_replicas=seen.ready_replicas,
            total_replicas=seen.total_replicas,
            owner=self.owner,
            last_writer=self.writer,
            max_unavailable=self.max_unavailable,
        )

    def pods(self) -> tuple[PodView, ...]:
        self._settle_pods()
        spec = self.served["spec"]
        container = spec["containers"][0]
        words = ContainerWords(command=container["command"], args=container["args"])
        return tuple(replace(pod, words=words, delivery=delivery_in(spec)) for pod in super().pods())

    def _settle_pods(self) -> None:
        if self.now >= self.rolled_at + timedelta(seconds=ROLLOUT_S) and not self.paused:
            self.served = deepcopy(self.template)

    def reports(self) -> dict[str, Report | Unreachable]:
        return {pod.name: self._report(pod) for pod in self.pods() if pod.delivery is not None and pod.ready}

    def _report(self, pod: PodView) -> Report | Unreachable:
        assert pod.delivery is not None
        if self.plugin_says is not None:
            return self.plugin_says
        delivery = pod.delivery
        seen_until = max(self.now - timedelta(seconds=KUBELET_S), self.rolled_at + timedelta(seconds=ROLLOUT_S))
        seen = [text for at, text in self.maps.get(delivery.config_map, []) if at <= seen_until]
        taken = [found for text in seen if (found := setting_in(text, delivery.started)) is not None]
        wanted, start = limits_of(taken[-1] if taken else delivery.approved), limits_of(delivery.started)
        standing = Standing(wanted, None, running=0, settled_s=None, steps=0, changes=0, fall_backs=0)
        return Report(PROTOCOL, "0.32.0", Envelope(start, limits_of(delivery.approved)), standing)

    def observe_profile(self) -> ProfileObservation:
        seen, live = super().observe_profile(), self.reports()
        if seen.workload is None or seen.pods is None:
            return replace(seen, plugin_image=IMAGE)
        pods = pods_in_force(seen.pods, seen.workload, live)
        return replace(seen, pods=pods, live=live, plugin_image=IMAGE)

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        match action:
            case act.WriteWords(fields=fields) if fields:
                self._write(fields)
            case act.EnsureLimits(config_map=name, setting=setting):
                self.set_limits_map(limits_as_text(setting), name)
            case _:
                super().perform(action, run)

    def _write(self, fields: Sequence[FieldChange]) -> None:
        groups = by_object(fields)
        objects = {(each["kind"], each["metadata"]["name"]): each for each in self._objects()}
        found = [(objects[group[0].kind, group[0].name], group) for group in groups]
        if not all(stand_as(one, group) or stand_as_before(one, group) for one, group in found):
            return
        for one, group in found:
            patch = json_patch(one, group)
            if not patch:
                continue
            self._settle_pods()
            patched(one, patch)
            self.writes.append((one["kind"], group))
            if one["kind"] == "ConfigMap":
                self.set_limits_map(one["data"].get(LIMITS_KEY), one["metadata"]["name"])
            else:
                self.template = one["spec"]["template"]
                self.template_writes += 1
                super().set_args(list(self.engine.get("args") or []), writer="kneekeeper")


def patched(holder: dict[str, Any], patch: Sequence[dict[str, Any]]) -> None:
    """As the API server applies a JSON patch, in place; a test that does not hold fails."""
    for operation in patch:
        *way, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        place: Any = holder
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        key: Any = int(last) if isinstance(place, list) else last
        match operation["op"]:
            case "test":
                value = place[key] if isinstance(place, list) else place.get(key)
                assert json.dumps(value, sort_keys=True) == json.dumps(operation["value"], sort_keys=True), operation
            case "add" if isinstance(place, list):
                assert key <= len(place), operation
                place.insert(key, operation["value"])
            case "add" | "replace":
                place[key] = operation["value"]
            case "remove":
                del place[key]
