"""What surrounds a place: nodes, pods as a kubelet reports them, and engines and a load agent that answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import SecretStr

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.stage import StageState
from kneekeeper.api.tuning_run import RunStep, TuningRunStatus
from kneekeeper.kube.resources import PODS, Resource
from kneekeeper.load.client import AgentClient
from tests.integration.place import Place, stage_status
from tests.integration.serving import add_node
from tests.unit.kube_objects import PRODUCT, template, tuning_run
from tests.unit.no_samples import NO_SAMPLES

SETTING = Setting(max_num_seqs=256, max_num_batched_tokens=2048)
WORDS = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=64"])
METRICS = (
    "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n"
    "vllm:num_preemptions_total 0\nvllm:generation_tokens_total 9\n"
)


@dataclass
class Outside:
    """Engines and the load agent; remembers what was asked."""

    state: StageState | None = None
    agent_answers: bool = True
    asked: list[str] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        return httpx.Response(200, text=METRICS)

    def connect(self, host: str, port: int, token: SecretStr) -> AgentClient:
        return AgentClient(f"http://{host}:{port}", token.get_secret_value(), httpx.MockTransport(self.agent))

    def agent(self, request: httpx.Request) -> httpx.Response:
        """The load agent: without a state it knows no stage."""
        self.asked.append(request.url.path)
        if not self.agent_answers:
            raise httpx.ConnectError("refused")
        if self.state is None:
            return httpx.Response(404, json={"message": "unknown"})
        if request.url.path.endswith("/samples"):
            return httpx.Response(200, text=NO_SAMPLES.model_dump_json())
        return httpx.Response(200, text=stage_status(request.url.path.split("/")[-1], self.state).model_dump_json())


def past_preflight(step: RunStep, probe_target: ProbeTarget = ProbeTarget.CLONE, **changes: Any) -> TuningRunStatus:
    plan = tuning_run().status.plan
    assert plan is not None
    return TuningRunStatus(plan=plan.with_changes(probe_target=probe_target), step=step, **changes)


async def run_pod(place: Place, pod: Resource, ip: str) -> None:
    """The pod exists and is ready, as a kubelet would report."""
    await place.kube.create(PODS, place.namespace, pod)
    await become_ready(place, pod["metadata"]["name"], ip)


async def become_ready(place: Place, name: str, ip: str) -> None:
    made = await place.get(PODS, name)
    made["status"] |= {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await place.kube.replace_status(PODS, place.namespace, name, made)


def _serving_pod(name: str, node: str) -> Resource:
    made = template(nodeName=node)
    del made["spec"]["containers"][1]["lifecycle"]
    return {"metadata": {"name": name, "labels": made["metadata"]["labels"]}, "spec": made["spec"]}


async def serve(place: Place, node_gpus: int = 4) -> None:
    """A workload of one pod on a node with some GPUs."""
    node = f"node-{place.namespace}"
    await add_node(place.kube, node, f"{PRODUCT}-{place.namespace}", node_gpus)
    await place.deploy(template())
    await run_pod(place, _serving_pod("chat-a", node), "10.244.0.9")
