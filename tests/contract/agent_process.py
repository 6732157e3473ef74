"""A load agent as the operator meets it: a process with a token, asked over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kneekeeper.api.offered_load import Closed, Fixed
from kneekeeper.api.stage import Limits, Samples, Slo, StageSpec, StageState, StageStatus, Target
from kneekeeper.load.agent import API_KEY_FILE, TOKEN_FILE
from kneekeeper.load.client import AgentClient

TOKEN = "token-of-the-run"
PATIENT = Slo(ttft_s=300.0)
"""A target so long that the client's delays on a busy machine do not matter beside it."""


@dataclass(frozen=True)
class AgentProcess:
    process: asyncio.subprocess.Process
    url: str
    client: AgentClient

    async def worker_is_gone(self, pid: int) -> bool:
        """Whether a process ends within ten seconds; it need not be the agent's child any more."""
        for _ in range(200):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            await asyncio.sleep(0.05)
        return False

    def workers(self) -> list[int]:
        """The processes that the agent has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in children.split()]

    async def ended(self, stage_id: str, within_s: float = 60.0) -> StageStatus:
        """Ask until the stage is over."""
        return await self._ask_until(stage_id, lambda status: status.state is not StageState.RUNNING, within_s)

    async def begun(self, stage_id: str, sent: int = 1) -> StageStatus:
        """Ask until requests have been sent."""
        return await self._ask_until(stage_id, lambda status: status.sent >= sent, 30)

    async def _ask_until(self, stage_id: str, is_it: Callable[[StageStatus], bool], within_s: float) -> StageStatus:
        async with asyncio.timeout(within_s):
            while True:
                status = await self.client.get_stage(stage_id)
                if is_it(status):
                    return status
                await asyncio.sleep(0.05)

    async def measure(self, spec: StageSpec, within_s: float = 60.0) -> tuple[StageStatus, Samples]:
        """Run a stage from its order to its samples."""
        await self.client.put_stage(spec)
        status = await self.ended(spec.id, within_s)
        return status, await self.client.get_samples(spec.id)


_numbers = itertools.count(1)


def stage(port: int, **values: Any) -> StageSpec:
    """A short closed-loop stage with an id of its own; every value may be replaced, `limits` in parts."""
    limits = {"min_requests": 10, "max_requests": 40, "max_duration_s": 20.0, "request_timeout_s": 10.0}
    defaults: dict[str, Any] = {
        "id": f"stage-{next(_numbers)}",
        "target": Target(host="127.0.0.1", port=port, model="tiny"),
        "prompt_tokens": Fixed(value=8),
        "output_tokens": Fixed(value=5),
        "arrivals": Closed(users=4),
        "slo": PATIENT,
        "seed": 7,
    }
    return StageSpec(limits=Limits(**(limits | values.pop("limits", {}))), **(defaults | values))


@asynccontextmanager
async def agent_process(
    directory: Path, api_key: str | None = None, more: Mapping[str, str] | None = None
) -> AsyncIterator[AgentProcess]:
    """An agent on a free port, ended with the context; `more` goes into its environment."""
    token_file = directory / "token"
    token_file.write_text(TOKEN + "\n", encoding="ascii")
    environment = {TOKEN_FILE: str(token_file), "PATH": "/usr/bin:/bin", **(more or {})}
    if api_key is not None:
        (directory / "key").write_text(api_key, encoding="ascii")
        environment[API_KEY_FILE] = str(directory / "key")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kneekeeper.load.agent",
        "--port",
        "0",
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        port = re.search(r"serving on port (\d+)", line)
        assert port, line
        draining = asyncio.create_task(process.stderr.read())
        url = f"http://127.0.0.1:{port[1]}"
        async with AgentClient(url, TOKEN) as client:
            yield AgentProcess(process, url, client)
        draining.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
