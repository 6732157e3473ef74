"""Open-loop traffic to serving pods, from this machine straight to their addresses."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from e2e.lab import PATIENCE
from kneekeeper.api.offered_load import Lengths, Open
from kneekeeper.api.stage import Limits, Samples, StageSpec, Target
from kneekeeper.domain.samples import StageData
from tests.contract.agent_process import AgentProcess, agent_process

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
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        agents = [await stack.enter_async_context(agent_process(folder)) for _ in pods]
        work = [_stage(agent, traffic, pod, seed + n) for n, (agent, pod) in enumerate(zip(agents, pods, strict=True))]
        samples = await asyncio.gather(*work)
    data = [StageData.from_wire(s) for s in samples]
    return Latency(
        p99_ttft_s=float(np.nanquantile(np.concatenate([d.ttft_s for d in data]), 0.99)),
        p99_tpot_s=float(np.nanquantile(np.concatenate([d.tpot_s for d in data]), 0.99)),
        requests=sum(len(d) for d in data),
        failed=sum(int((~d.ok).sum()) for d in data),
    )


async def _stage(agent: AgentProcess, traffic: Traffic, pod: str, seed: int) -> Samples:
    spec = StageSpec(
        id=f"traffic-{seed}",
        target=Target(host=pod, port=traffic.port, model=traffic.model),
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        arrivals=Open(rate=traffic.rate),
        limits=Limits(min_requests=traffic.requests, max_requests=traffic.requests, max_duration_s=LONGEST_S),
        seed=seed,
    )
    _, samples = await agent.measure(spec, within_s=PATIENCE * LONGEST_S)
    return samples
