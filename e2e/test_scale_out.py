"""One stage over the pods of an indexed Job: offered once, merged exactly, void when one of them is lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import pytest

from e2e.first_run import chat_traffic, pod_addresses
from e2e.lab import Lab, Object, condition
from e2e.simulated import PORT, Simulated
from kneekeeper.actuate.agent import build_agent_job, build_agent_secret
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.offered_load import Open
from kneekeeper.api.stage import Helpers, Limits, Samples, StageSpec, StageState, StageStatus, Target
from kneekeeper.api.tuning_run import TuningRun, TuningRunSpec
from kneekeeper.domain.names import AGENT_PORT
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.client import AgentClient
from kneekeeper.load.stage_runner import HELPER_LOST

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

AGENTS = 2
RATE = 40.0
TOKEN = secrets.token_urlsafe()


def test_a_stage_is_shared_by_the_pods_of_a_job_and_void_without_one_of_them(lab: Lab, namespace: str):
    workload = Simulated(image=lab.image, replicas=1)
    lab.apply(workload.deployment(namespace), *_agents(lab, namespace))
    lab.wait_rolled_out(workload.name, namespace)
    (engine,) = pod_addresses(lab, namespace, workload.name)
    first, second = _ready_agents(lab, namespace)

    spec = _stage(engine, "whole", requests=400)
    status, samples = asyncio.run(_measure(first, second, spec))
    assert (status.state, status.failed) == (StageState.DONE, 0)
    assert samples is not None
    assert sorted(samples.intended_s) == pytest.approx(draw_workload(spec).intended_s.tolist(), abs=1e-6)

    cut = _stage(engine, "cut", requests=4000)
    status, _ = asyncio.run(_measure(first, second, cut, lambda: _kill(lab, namespace, second)))
    assert (status.state, status.reason) == (StageState.INVALID, HELPER_LOST)

    successor = lab.wait(
        "the lost agent's successor",
        lambda: [pod for pod in _ready_agents(lab, namespace) if _uid(pod) not in (_uid(first), _uid(second))],
        timeout_s=90,
    )
    status, samples = asyncio.run(_measure(first, successor[0], _stage(engine, "again", requests=100)))
    assert status.state is StageState.DONE
    assert samples is not None
    assert len(samples.outcome) == 100


def _agents(lab: Lab, namespace: str) -> list[Object]:
    """The product's own Secret and Job; without an owner, since no run is under way."""
    run = TuningRun(
        metadata={"name": "shared", "namespace": namespace, "uid": "none"}, spec=TuningRunSpec(profile_name="none")
    )
    settings = ActuateSettings(
        agent_image=lab.image, priority_class="kneekeeper-probe", agent_image_pull_policy="Never"
    )
    objects = [build_agent_secret(run, TOKEN), build_agent_job(run, settings, agents=AGENTS)]
    for made in objects:
        del made["metadata"]["ownerReferences"]
    return objects


def _ready_agents(lab: Lab, namespace: str) -> list[Object]:
    def ready() -> list[Object]:
        pods = lab.find("pods", namespace, "batch.kubernetes.io/job-name")
        up = [
            pod
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp") and condition(pod, "Ready")["status"] == "True"
        ]
        return up if len(up) == AGENTS else []

    found: list[Object] = lab.wait(f"{AGENTS} agents", ready, timeout_s=90)
    return found


def _kill(lab: Lab, namespace: str, pod: Object) -> None:
    lab.kubectl("-n", namespace, "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _stage(engine: str, name: str, *, requests: int) -> StageSpec:
    traffic = chat_traffic()
    return StageSpec(
        id=name,
        target=Target(host=engine, port=PORT, model=traffic.model),
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        arrivals=Open(rate=RATE),
        limits=Limits(min_requests=requests, max_requests=requests, max_duration_s=120.0),
        seed=requests,
        agents=AGENTS,
    )


async def _measure(
    first: Object, second: Object, spec: StageSpec, meanwhile: Callable[[], None] | None = None
) -> tuple[StageStatus, Samples | None]:
    """Order the stage from the first agent. What an Invalid stage saw is of no use."""
    async with AgentClient(f"http://{first['status']['podIP']}:{AGENT_PORT}", TOKEN) as client:
        await client.put_helpers(Helpers(addresses=(f"{second['status']['podIP']}:{AGENT_PORT}",)))
        status = await client.put_stage(spec)
        if meanwhile is not None:
            await asyncio.sleep(2)
            await asyncio.to_thread(meanwhile)
        while status.state is StageState.RUNNING:
            await asyncio.sleep(0.5)
            status = await client.get_stage(spec.id)
        done = status.state is StageState.DONE
        return status, await client.get_samples(spec.id) if done else None
