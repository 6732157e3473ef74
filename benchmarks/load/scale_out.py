"""Does one stage over several agents measure as one agent does? `python -m benchmarks.load.scale_out`.

A server that stamps its own truth answers at a fixed pace; agents on this machine send one closed loop together. The
last line is one JSON object: the stage's state, and the errors of its quantiles against the truth, in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np

from benchmarks.load.levels import MODEL, PROMPT_TOKENS
from benchmarks.load.truth import Plan, TruthServer, running
from kneekeeper.api.offered_load import Closed, Fixed
from kneekeeper.api.stage import Helpers, Limits, Samples, StageSpec, StageState, StageStatus, Target
from kneekeeper.domain.samples import StageData
from kneekeeper.load.agent import TOKEN_FILE
from kneekeeper.load.client import AgentClient

_TOKEN = "benchmark"
_ASK_EVERY_S = 2.0


@asynccontextmanager
async def agent_address(token_file: Path) -> AsyncIterator[str]:
    """An agent on this machine, ended with the context."""
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kneekeeper.load.agent", "--port", "0"),
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {TOKEN_FILE: str(token_file)},
    )
    try:
        assert agent.stderr is not None
        said = (await agent.stderr.readline()).decode()
        port = re.search(r"serving on port (\d+)", said)
        if port is None:
            raise SystemExit(f"an agent did not start: {said}")
        yield f"127.0.0.1:{port[1]}"
    finally:
        agent.terminate()
        await agent.wait()


def spec_of(options: argparse.Namespace, port: int) -> StageSpec:
    """Each user sends `options.requests` requests, on average."""
    requests = options.requests * options.streams
    return StageSpec(
        id="bench",
        target=Target(host="127.0.0.1", port=port, model=MODEL),
        prompt_tokens=Fixed(value=PROMPT_TOKENS),
        output_tokens=Fixed(value=options.output_tokens),
        arrivals=Closed(users=options.streams),
        limits=Limits(min_requests=requests, max_requests=requests, max_duration_s=600.0, request_timeout_s=300.0),
        seed=time.time_ns() % 2**31,
        agents=options.agents,
    )


async def measure(spec: StageSpec) -> tuple[StageStatus, Samples]:
    """Run the stage with as many agents as it is for."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "token").write_text(_TOKEN, encoding="ascii")
        started = [agent_address(folder / "token") for _ in range(spec.agents)]
        first, *helpers = [await stack.enter_async_context(each) for each in started]
        client = await stack.enter_async_context(AgentClient(f"http://{first}", _TOKEN))
        await client.put_helpers(Helpers(addresses=tuple(helpers)))
        status = await client.put_stage(spec)
        while status.state is StageState.RUNNING:
            await asyncio.sleep(_ASK_EVERY_S)
            status = await client.get_stage(spec.id)
        return status, await client.get_samples(spec.id)


def compare(status: StageStatus, samples: Samples, server: TruthServer) -> dict[str, object]:
    """What the agents saw less what happened, over all answers."""
    data, truth = StageData.from_wire(samples), server.truth()
    ttft_ms, tpot_ms = 1000 * data.ttft_s[data.ok], 1000 * data.tpot_s[data.ok]
    pairs = {"ttft": (ttft_ms, truth.ttft_ms), "tpot": (tpot_ms[np.isfinite(tpot_ms)], truth.tpot_ms)}
    errors = {
        f"{name}_p{percent}": round(float(np.percentile(seen, percent) - np.percentile(true, percent)), 3)
        for name, (seen, true) in pairs.items()
        for percent in (50, 99)
    }
    return {
        "state": status.state,
        "reason": status.reason,
        "message": status.message,
        "requests": len(samples.outcome),
        "mean_concurrency": round(status.mean_concurrency, 1),
        "error_ms": errors,
        "evidence": status.evidence.model_dump(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--requests", type=int, default=3, help="of each stream")
    parser.add_argument("--output-tokens", type=int, default=40)
    parser.add_argument("--ttft-ms", type=float, default=500.0)
    parser.add_argument("--tpot-ms", type=float, default=500.0)
    options = parser.parse_args()
    with running() as server:
        server.set_plan(Plan(options.ttft_ms, options.tpot_ms))
        status, samples = asyncio.run(measure(spec_of(options, server.port)))
        seen = compare(status, samples, server)
    print(json.dumps({"streams": options.streams, "agents": options.agents} | seen))


if __name__ == "__main__":
    main()
