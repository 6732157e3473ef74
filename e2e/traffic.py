"""Open-loop traffic to serving pods, from this machine straight to their addresses."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from e2e.realvllm.server import free_port
from kneekeeper.api.offered_load import Lengths, Open
from kneekeeper.api.stage import Limits, Samples, StageSpec, StageState, Target
from kneekeeper.domain.samples import StageData
from kneekeeper.load.client import AgentClient, AgentError, StageUnknown

LONGEST_S = 300.0


@dataclass(frozen=True)
class Traffic:
    """What every pod gets: requests per second, how many, and their lengths. Arrivals are Poisson."""

    rate: float
    requests: int
    prompt_tokens: Lengths
    output_tokens: Lengths
    model: str = "tiny"
    port: int = 8000


@dataclass(frozen=True)
class Latency:
    """P99s over the requests of all pods, seconds; failed requests are counted apart."""

    p99_ttft_s: float
    p99_tpot_s: float
    requests: int
    failed: int


def send(traffic: Traffic, pods: Sequence[str], seed: int) -> Latency:
    """Send to all of these addresses at once and wait until the last answer."""
    return asyncio.run(_send(traffic, pods, seed))


async def _send(traffic: Traffic, pods: Sequence[str], seed: int) -> Latency:
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(_agent()) for _ in pods]
        work = [_stage(agent, traffic, pod, seed + n) for n, (agent, pod) in enumerate(zip(agents, pods, strict=True))]
        samples = await asyncio.gather(*work)
    data = [StageData.from_wire(s) for s in samples]
    return Latency(
        p99_ttft_s=float(np.nanquantile(np.concatenate([d.ttft_s for d in data]), 0.99)),
        p99_tpot_s=float(np.nanquantile(np.concatenate([d.tpot_s for d in data]), 0.99)),
        requests=sum(len(d) for d in data),
        failed=sum(int((~d.ok).sum()) for d in data),
    )


async def _stage(agent: AgentClient, traffic: Traffic, pod: str, seed: int) -> Samples:
    spec = StageSpec(
        id=f"traffic-{seed}",
        target=Target(host=pod, port=traffic.port, model=traffic.model),
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        arrivals=Open(rate=traffic.rate),
        limits=Limits(min_requests=traffic.requests, max_requests=traffic.requests, max_duration_s=LONGEST_S),
        seed=seed,
    )
    await agent.put_stage(spec)
    while True:
        status = await agent.get_stage(spec.id)
        if status is not None and status.state != StageState.RUNNING:
            return await agent.get_samples(spec.id)
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _agent() -> AsyncIterator[AgentClient]:
    port, token = free_port(), secrets.token_urlsafe()
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "token"
        token_file.write_text(token)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kneekeeper.load.agent", "--port", str(port)),
            env={"KNEEKEEPER_TOKEN_FILE": str(token_file), "PATH": "/usr/bin:/bin"},
        )
        try:
            async with AgentClient(f"http://127.0.0.1:{port}", token) as client:
                await _until_it_answers(client)
                yield client
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), timeout=20)


async def _until_it_answers(client: AgentClient) -> None:
    for _ in range(1000):
        try:
            await client.get_stage("none")
        except StageUnknown:
            return
        except AgentError:
            await asyncio.sleep(0.1)
    raise TimeoutError("the load agent did not start")
