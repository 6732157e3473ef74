"""A namespace of its own at a real API server, with a workload, a profile and its run."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import yaml
from pydantic import SecretStr

from kneekeeper.actuate.apply import ProfileSubject, RunSubject, Writers, perform
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.model import API_VERSION
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.api.stage import Evidence, StageSpec, StageState, StageStatus
from kneekeeper.domain.actions import ProfileAction, RunAction
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from kneekeeper.load.client import AgentClient
from kneekeeper.observe.own_resources import parse_profile, parse_run
from kneekeeper.observe.pods import parse_pod
from kneekeeper.observe.target import read_workload
from tests.unit.kube_objects import PROFILE_SPEC, deployment, tuning_run

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CRD", namespaced=False)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
PRIORITY_CLASS = "kneekeeper-test"
SETTINGS = ActuateSettings(agent_image="registry.example.com/kneekeeper:1", priority_class=PRIORITY_CLASS)
REF = TargetRef(kind="Deployment", name="chat")


class Agent:
    """Takes orders over HTTP; remembers them, and where and with which token it was reached."""

    def __init__(self) -> None:
        self.orders: list[StageSpec] = []
        self.reached: tuple[str, int, str] | None = None

    def connect(self, host: str, port: int, token: SecretStr) -> AgentClient:
        self.reached = (host, port, token.get_secret_value())
        return AgentClient(f"http://{host}:{port}", "token", httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        spec = StageSpec.model_validate_json(request.content)
        self.orders.append(spec)
        return httpx.Response(201, text=stage_status(spec.id, StageState.RUNNING).model_dump_json())


def stage_status(stage: str, state: StageState) -> StageStatus:
    """What an agent says of a stage."""
    return StageStatus(
        id=stage,
        state=state,
        elapsed_s=1,
        warmup_s=0,
        planned=1,
        sent=1,
        succeeded=1,
        failed=0,
        timed_out=0,
        in_flight=0,
        requests_per_s=1,
        output_tokens_per_s=1,
        mean_concurrency=1,
        evidence=Evidence(send_lag_p99_s=0, loop_lag_p99_s=0, cpu_share=0, achieved_over_offered=1),
    )


@dataclass
class Place:
    """A namespace of its own with the CRDs, a Deployment, a profile and its run."""

    kube: Kube
    namespace: str
    writers: Writers
    agent: Agent
    profile: Resource
    run: Resource

    async def run_subject(self, agent: Resource | None = None, **profile_spec: Any) -> RunSubject:
        run = parse_run(self.run).with_changes(status=tuning_run(**profile_spec).status)
        workload = await read_workload(self.kube, self.namespace, REF)
        view = None if agent is None else parse_pod(agent, "agent")
        return RunSubject(run, workload.view if workload is not None else None, view)

    async def do(self, *actions: RunAction, agent: Resource | None = None, **profile_spec: Any) -> None:
        await perform(self.writers, await self.run_subject(agent, **profile_spec), actions, NOW)

    async def do_for_profile(self, *actions: ProfileAction) -> None:
        await perform(self.writers, ProfileSubject(parse_profile(self.profile)), actions, NOW)

    async def get(self, kind: Kind, name: str) -> Resource:
        return await self.kube.get(kind, self.namespace, name)

    async def names(self, kind: Kind) -> list[str]:
        return sorted(o["metadata"]["name"] for o in await self.kube.list(kind, self.namespace))

    async def remaining(self, kind: Kind) -> list[str]:
        """Names of what is not being deleted; an unscheduled pod goes at once."""
        found = await self.kube.list(kind, self.namespace)
        return [o["metadata"]["name"] for o in found if "deletionTimestamp" not in o["metadata"]]

    async def deploy(self, pod_template: Resource) -> None:
        made = deployment(pod_template)
        made["metadata"] = {"name": "chat", "namespace": self.namespace}
        del made["status"]
        await self.kube.create(DEPLOYMENTS, self.namespace, made)


async def make_place(kube: Kube) -> Place:
    """A new namespace; the cluster-wide objects are made by the first."""
    for definition in _definitions():
        await _put(kube, CRDS, "", definition)
    priority = {"metadata": {"name": PRIORITY_CLASS}, "value": -1000, "preemptionPolicy": "Never"}
    await _put(kube, PRIORITY_CLASSES, "", priority)
    namespace = f"place-{secrets.token_hex(4)}"
    await kube.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    # The controller that would make it may not run here; the admission of pods asks for it.
    await _put(kube, SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "default"}})
    profile = await make_profile(kube, namespace, "chat")
    run = await make_run(kube, namespace, "chat-1")
    agent = Agent()
    return Place(kube, namespace, Writers(kube, agent.connect, SETTINGS), agent, profile, run)


async def make_profile(kube: Kube, namespace: str, name: str, **spec: Any) -> Resource:
    """With these parts of the spec; None leaves one out."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "ServingProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {part: value for part, value in (PROFILE_SPEC | spec).items() if value is not None},
    }
    return await _eventually_create(kube, SERVING_PROFILES, namespace, body)


async def make_run(kube: Kube, namespace: str, name: str, profile: str = "chat") -> Resource:
    body = {
        "apiVersion": API_VERSION,
        "kind": "TuningRun",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"profileName": profile},
    }
    return await _eventually_create(kube, TUNING_RUNS, namespace, body)


@cache
def _definitions() -> tuple[Resource, ...]:
    return tuple(yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml")))


async def _put(kube: Kube, kind: Kind, namespace: str, body: Resource) -> Resource:
    try:
        return await kube.get(kind, namespace, body["metadata"]["name"])
    except NotFound:
        pass
    try:
        return await kube.create(kind, namespace, body)
    except Conflict:
        return await kube.get(kind, namespace, body["metadata"]["name"])


async def _eventually_create(kube: Kube, kind: Kind, namespace: str, body: Resource) -> Resource:
    """A new CRD is served a moment after it was made."""
    for _ in range(200):
        try:
            return await kube.create(kind, namespace, body)
        except NotFound:
            await asyncio.sleep(0.05)
    raise AssertionError(f"{kind.plural} is not served")
