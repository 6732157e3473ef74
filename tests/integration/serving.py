"""Workloads that serve, as their controllers and kubelets would report them, and profiles that tune them."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from kneekeeper.actuate.status import write_status
from kneekeeper.api.profile_status import BoundBy, ServingProfileStatus
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import Certification, Choice, RunOutcome, RunStep, TuningRunStatus, Verdict
from kneekeeper.api.workload import Workload
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, NODES, PODS, SERVING_PROFILES, TUNING_RUNS, Resource
from tests.integration.place import NAMESPACES, SERVICE_ACCOUNTS, make_profile, make_run
from tests.unit.kube_objects import PROFILE_SPEC, template, tuning_run

PATIENCE_S = 60.0
_POLL_S = 0.1

_T = TypeVar("_T")


async def eventually(what: str, look: Callable[[], Awaitable[_T | None]], within_s: float = PATIENCE_S) -> _T:
    """The first answer that is neither None nor False."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        found = await look()
        if found is not None and found is not False:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"waited {within_s:g} s: {what}"
        await asyncio.sleep(_POLL_S)


@contextmanager
def busy_engine() -> Iterator[int]:
    """The port of a server whose metrics never read the same twice, as those of an engine with users."""
    running = itertools.count(1)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                f"vllm:num_requests_running {next(running) % 97}\nvllm:num_requests_waiting 0\n"
                "vllm:num_preemptions_total 0\nvllm:generation_tokens_total 9\n".encode()
            )

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: requests are expected."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


async def add_node(kube: Kube, name: str, product: str, gpus: int) -> None:
    """A ready node with GPUs."""
    made = await kube.create(NODES, "", {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}}})
    made["status"] = {
        "capacity": {"nvidia.com/gpu": str(gpus)},
        "allocatable": {"nvidia.com/gpu": str(gpus)},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await kube.replace_status(NODES, "", name, made)


@dataclass(frozen=True)
class Serving:
    """A namespace whose pods run on one node and answer on one port of the loopback address."""

    kube: Kube
    namespace: str
    node: str
    port: int

    @classmethod
    async def create(cls, kube: Kube, namespace: str, node: str, port: int) -> Serving:
        await kube.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        # The controller that would make it does not run; the admission of pods asks for it.
        await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "default"}})
        return cls(kube, namespace, node, port)

    async def deploy(self, name: str, replicas: int = 1, **pod_spec: Any) -> None:
        """A Deployment that has rolled out, with its pods."""
        pod_template = template(**pod_spec)
        pod_template["metadata"]["labels"] = {"app": name}
        for container in pod_template["spec"]["containers"]:
            container.pop("lifecycle", None)
        deployment = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": pod_template,
            },
        }
        await self.kube.create(DEPLOYMENTS, self.namespace, deployment)
        await self.roll_out(name)
        for number in range(replicas):
            await self.run_pod(f"{name}-{number}", pod_template)

    async def roll_out(self, name: str) -> None:
        """The Deployment's status says that all its replicas are up to date and ready."""
        stored = await self.kube.get(DEPLOYMENTS, self.namespace, name)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        stored["status"] = dict.fromkeys(counts, stored["spec"]["replicas"]) | {
            "observedGeneration": stored["metadata"]["generation"]
        }
        await self.kube.replace_status(DEPLOYMENTS, self.namespace, name, stored)

    async def run_pod(self, name: str, pod_template: Resource) -> None:
        """As a controller makes it, and as the kubelet then reports it."""
        made = await self.make_pod(name, pod_template)
        await self.set_pod_status(made, phase="Running", conditions=[{"type": "Ready", "status": "True"}])

    async def make_pod(self, name: str, pod_template: Resource) -> Resource:
        """As a controller makes it."""
        pod = {"metadata": {"name": name, **pod_template["metadata"]}, "spec": deepcopy(pod_template["spec"])}
        pod["spec"]["nodeName"] = self.node
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                port.pop("hostPort", None)
        return await self.kube.create(PODS, self.namespace, pod)

    async def set_pod_status(self, pod: Resource, **status: Any) -> None:
        """As kubelet reports."""
        pod["status"] |= {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], **status}
        await self.kube.replace_status(PODS, self.namespace, pod["metadata"]["name"], pod)

    def spec(self, name: str, **spec: Any) -> dict[str, Any]:
        """A profile's spec for the Deployment of this name."""
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        return PROFILE_SPEC | {"targetRef": ref, "endpoint": {"port": self.port}} | spec

    async def profile(self, name: str, **spec: Any) -> None:
        """A profile and its Deployment of the same name; the Deployment exists."""
        await make_profile(self.kube, self.namespace, name, **self.spec(name, **spec))

    async def patch(self, name: str, path: str, value: object) -> int:
        """The profile's generation after the change."""
        operation = {"op": "add", "path": path, "value": value}
        stored = await self.kube.json_patch(SERVING_PROFILES, self.namespace, name, [operation])
        return int(stored["metadata"]["generation"])

    async def status(self, name: str) -> dict[str, Any]:
        """The profile's status."""
        return (await self.kube.get(SERVING_PROFILES, self.namespace, name)).get("status") or {}

    async def is_gone(self, name: str) -> bool:
        """Whether the profile does not exist any more."""
        try:
            await self.kube.get(SERVING_PROFILES, self.namespace, name)
        except NotFound:
            return True
        return False

    async def condition(self, name: str, type_: str) -> str:
        """The reason of the profile's condition; empty where it is not set."""
        conditions = (await self.status(name)).get("conditions", [])
        return next((str(c["reason"]) for c in conditions if c["type"] == type_), "")

    async def seen(self, name: str, generation: int, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The profile's status, once it tells of this generation of the spec."""

        async def look() -> dict[str, Any] | None:
            status = await self.status(name)
            return status if status.get("observedGeneration", 0) >= generation else None

        return await eventually(f"{name} tells of generation {generation}", look, within_s)

    async def runs(self, profile: str) -> list[Resource]:
        """The profile's runs."""
        runs = await self.kube.list(TUNING_RUNS, self.namespace)
        return [run for run in runs if run["spec"]["profileName"] == profile]

    async def run_waits_for(self, profile: str, reason: str) -> Resource:
        """The profile's only run, once it waits for this."""

        async def look() -> Resource | None:
            runs = await self.runs(profile)
            assert len(runs) <= 1, [run["metadata"]["name"] for run in runs]
            return next((run for run in runs if run.get("status", {}).get("waitingFor") == reason), None)

        return await eventually(f"the run of {profile} waits for {reason}", look)

    async def measure(
        self, name: str, outcome: RunOutcome, *, present_breaks_slo: bool = False, learned: Workload | None = None
    ) -> None:
        """A finished run of the engine as it stands, so that the profile, which is suspended, needs none. `learned` is
        what was known of its traffic then, where it declares none."""

        async def fingerprint() -> str | None:
            engine: dict[str, str] = (await self.status(name)).get("engine", {})
            return engine.get("fingerprint")

        plan = tuning_run().status.plan
        assert plan is not None
        stored = await self.kube.get(SERVING_PROFILES, self.namespace, name)
        plan = plan.with_changes(
            profile_spec=ServingProfileSpec.model_validate(stored["spec"] | _as_declared(learned)),
            workload_learned=learned is not None,
            fingerprint=await eventually(f"the engine of {name} is known", fingerprint),
        )
        setting = plan.present.with_changes(max_num_seqs=64)
        status = TuningRunStatus(
            plan=plan,
            step=RunStep.DONE,
            finished_at=datetime.now(UTC),
            outcome=outcome,
            cause=str(outcome),
            present_breaks_slo=present_breaks_slo,
            choices=[Choice(attempt=1, setting=setting, sustainable_requests_per_second=2.0, bound_by=BoundBy.KNEE)],
            certifications=[
                Certification(
                    attempt=1,
                    setting=setting,
                    offered_requests_per_second=2.0,
                    promised_requests_per_second=1.6,
                    verdict=Verdict.PASS if outcome == RunOutcome.CERTIFIED else Verdict.FAIL,
                    requests=3000,
                    misses=0,
                )
            ],
        )
        run = await make_run(self.kube, self.namespace, f"{name}-done", name)
        await self._finish(run, status)

    async def tell(self, name: str, **status: Any) -> None:
        """Parts of the profile's status, as if the operator had found them before."""

        async def told() -> bool:
            stored = await self.kube.get(SERVING_PROFILES, self.namespace, name)
            known = ServingProfileStatus.model_validate(stored.get("status") or {})
            try:
                await write_status(self.kube, SERVING_PROFILES, stored, known.with_changes(**status))
            except Conflict:
                return False
            return True

        await eventually(f"the status of {name} is written", told)

    async def _finish(self, run: Resource, status: TuningRunStatus) -> None:
        """The operator looks at the run too: whoever writes last must have read last."""
        name = run["metadata"]["name"]
        for _ in range(20):
            try:
                await write_status(self.kube, TUNING_RUNS, run, status)
            except Conflict:
                run = await self.kube.get(TUNING_RUNS, self.namespace, name)
            else:
                return
        raise AssertionError(f"{name} changes all the time")


def _as_declared(learned: Workload | None) -> dict[str, Any]:
    return {} if learned is None else {"workload": learned.to_resource()}
