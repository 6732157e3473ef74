"""This project's load agent, driven over HTTP as the operator drives it."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.load.levels import MODEL, PROMPT_TOKENS, Client, ClientFailed, Level, Quantiles, Report
from kneekeeper import __version__
from kneekeeper.api.offered_load import Closed, Fixed, Open
from kneekeeper.api.stage import Limits, Samples, StageSpec, StageState, StageStatus, Target
from kneekeeper.domain.samples import StageData
from kneekeeper.load.agent import TOKEN_FILE
from kneekeeper.load.client import AgentClient

_TOKEN = "benchmark"
_ASK_EVERY_S = 2.0
"""As the operator does while a stage runs."""

_STATUS, _SAMPLES = "status.json", "samples.json"


class Kneekeeper(Client):
    """Runs this module as a process of its own, so that its CPU is counted like that of the others."""

    name = "kneekeeper"

    @property
    def version(self) -> str:
        return __version__

    def prepare(self) -> None:
        """Nothing: it is what runs this."""

    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        shape = ["--requests", level.requests, "--output-tokens", level.output_tokens]
        load = ["--streams", level.streams, "--rate", level.rate]
        return [sys.executable, "-m", __name__, *map(str, [*shape, *load, "--port", port, "--into", scratch])]

    def report(self, level: Level, scratch: Path) -> Report:
        if not (scratch / _SAMPLES).is_file():
            raise ClientFailed("the agent gave no samples")
        status = StageStatus.model_validate_json((scratch / _STATUS).read_bytes())
        data = StageData.from_wire(Samples.model_validate_json((scratch / _SAMPLES).read_bytes()))
        good = data.ok
        paced = good & ~np.isnan(data.tpot_s)  # where tokens came after the first ones
        if not paced.any():
            raise ClientFailed(f"no request succeeded: {status.message}")
        verdict = status.state.value if status.state is StageState.DONE else f"{status.state}: {status.message}"
        return Report(Quantiles.of(data.ttft_s[good] * 1000, data.tpot_s[paced] * 1000), int(good.sum()), verdict)


async def _run(spec: StageSpec, into: Path) -> None:
    token_file = into / "token"
    token_file.write_text(_TOKEN, encoding="ascii")
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
            raise SystemExit(f"the agent did not start: {said}")
        async with AgentClient(f"http://127.0.0.1:{port[1]}", _TOKEN) as client:
            status = await client.put_stage(spec)
            while status.state is StageState.RUNNING:
                await asyncio.sleep(_ASK_EVERY_S)
                status = await client.get_stage(spec.id)
            (into / _STATUS).write_text(status.model_dump_json(), encoding="ascii")
            samples = await client.get_samples(spec.id)
            (into / _SAMPLES).write_text(samples.model_dump_json(), encoding="ascii")
    finally:
        agent.terminate()
        await agent.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("requests", int), ("output-tokens", int), ("streams", int), ("rate", float), ("port", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--into", type=Path, required=True)
    asked = parser.parse_args()
    spec = StageSpec(
        id="bench",
        target=Target(host="127.0.0.1", port=asked.port, model=MODEL),
        prompt_tokens=Fixed(value=PROMPT_TOKENS),
        output_tokens=Fixed(value=asked.output_tokens),
        arrivals=Closed(users=asked.streams) if asked.streams else Open(rate=asked.rate, burstiness=None),
        limits=Limits(min_requests=asked.requests, max_requests=asked.requests, max_duration_s=600.0),
        seed=time.time_ns() % 2**31,
    )
    asyncio.run(_run(spec, asked.into))


if __name__ == "__main__":
    main()
