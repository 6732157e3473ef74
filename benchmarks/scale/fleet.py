"""Profiles that have had their run, each with a Deployment of five pods that answer with vLLM's metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from kneekeeper.actuate.status import write_status
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import TUNING_RUNS
from tests.integration.place import make_profile, make_run
from tests.integration.serving import Serving, add_node, eventually
from tests.unit.kube_objects import PROFILE_SPEC, template
from tests.unit.plan.world import settled

PODS_OF_A_PROFILE = 5
PROFILES_OF_A_NAMESPACE = 50
"""A namespace is a team's."""

_AT_ONCE = 16
_PATIENCE_S = 600.0
_METRICS = Path(__file__).parents[2] / "tests/contract/golden/vllm-0.32-metrics.txt"
_PRODUCT = "GPU-of-the-fleet"
_ARGS = ["example/chat-8b", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]


@contextmanager
def engine() -> Iterator[int]:
    """The port of a server that answers with what a real vLLM answered."""
    body = _METRICS.read_bytes()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: requests are expected."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing: an operator that is stopped leaves its connections as they are."""

    server = Server(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Fleet:
    """Profiles by number; profile 7 is `p-7` in its namespace."""

    kube: Kube
    port: int
    fingerprint: str = ""
    size: int = 0

    async def grow(self, size: int) -> None:
        """Until there are so many profiles."""
        if self.size == 0:
            await add_node(self.kube, "node", _PRODUCT, gpus=1_000_000)
        first, self.size = self.size, size
        for number in range(first, size):
            if number % PROFILES_OF_A_NAMESPACE == 0:
                await Serving.create(self.kube, namespace_of(number), "node", self.port)
        await _all(self._add(number) for number in range(first, size))

    async def learn_fingerprint(self) -> None:
        """What the operator takes the fleet's engine for; it runs, and the fleet is empty yet."""
        await add_node(self.kube, "first", _PRODUCT, gpus=1_000_000)
        serving = await Serving.create(self.kube, "first", "first", self.port)
        await serving.deploy("first", containers=_containers())
        await serving.profile("first", suspend=True)

        async def told() -> str | None:
            engine: dict[str, str] = (await serving.status("first")).get("engine", {})
            return engine.get("fingerprint")

        self.fingerprint = await eventually("the fingerprint is known", told, _PATIENCE_S)

    async def _add(self, number: int) -> None:
        name, namespace = name_of(number), namespace_of(number)
        serving = Serving(self.kube, namespace, "node", self.port)
        await serving.deploy(name, PODS_OF_A_PROFILE, containers=_containers())
        spec = serving.spec(name)
        run = await make_run(self.kube, namespace, f"{name}-done", name)
        await write_status(self.kube, TUNING_RUNS, run, self._finished(spec))
        await make_profile(self.kube, namespace, name, **spec)

    def _finished(self, spec: dict[str, Any]) -> TuningRunStatus:
        """A whole run as the state machines leave it, of this profile's engine."""
        status = settled().last_run.status
        assert status.plan is not None
        plan = status.plan.with_changes(
            fingerprint=self.fingerprint, profile_spec=ServingProfileSpec.model_validate(PROFILE_SPEC | spec)
        )
        return status.with_changes(plan=plan, started_at=datetime.now(UTC), finished_at=datetime.now(UTC))


def name_of(number: int) -> str:
    """Of the profile and its Deployment."""
    return f"p-{number}"


def namespace_of(number: int) -> str:
    """Where profile `number` lives."""
    return f"team-{number // PROFILES_OF_A_NAMESPACE}"


def _containers() -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = deepcopy(template()["spec"]["containers"])
    containers[1]["args"] = list(_ARGS)
    return containers


async def _all(tasks: Iterable[Awaitable[None]]) -> None:
    """As many at once as the API server takes well."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(task: Awaitable[None]) -> None:
        async with places:
            await task

    await asyncio.gather(*(one(task) for task in tasks))
