"""A simulated engine in a process of its own, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

FAST = {
    "startup_s": 0.0,
    "api_ms_per_request": 0.0,
    "step_time": {"base_ms": 2.0, "noise": 0.0},
}
"""Short steps, so that tests are short. No test may depend on how short."""

_UP_WITHIN_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Engine:
    """A server that answers at `url`."""

    url: str
    port: int
    process: subprocess.Popen[str]

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All samples of /metrics by name and labels (without model_name and engine)."""
        text = httpx.get(f"{self.url}/metrics").text
        return {
            (
                sample.name,
                frozenset(item for item in sample.labels.items() if item[0] not in ("model_name", "engine")),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def sample(self, name: str, **labels: str) -> float:
        return self.samples()[(name, frozenset(labels.items()))]

    def wait_for(self, name: str, value: float, **labels: str) -> None:
        """Until the sample has the value; fails after ten seconds."""
        deadline = time.monotonic() + 10.0
        while self.sample(name, **labels) != value:
            assert time.monotonic() < deadline, f"{name} is {self.sample(name, **labels)}, not {value}"
            time.sleep(0.02)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=30.0)

    def events(self, path: str, **body: Any) -> list[str]:
        """The data of all server-sent events of a stream."""
        answer = self.post(path, stream=True, **body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        parts = answer.text.split("\n\n")
        assert parts.pop() == ""
        assert all(part.startswith("data: ") for part in parts)
        return [part.removeprefix("data: ") for part in parts]


def launch(hardware: dict[str, Any], *arguments: str) -> subprocess.Popen[str]:
    """Start a server and do not wait for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "kneekeeper.engine", *arguments],
        env=os.environ | {"KNEEKEEPER_SIM": json.dumps(hardware)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running_engine(hardware: dict[str, Any], *arguments: str) -> Iterator[Engine]:
    """A server that is up; it gets SIGTERM at the end."""
    port = free_port()
    process = launch(hardware, *arguments, "--host", "127.0.0.1", "--port", str(port))
    engine = Engine(f"http://127.0.0.1:{port}", port, process)
    try:
        deadline = time.monotonic() + _UP_WITHIN_S
        while True:
            try:
                httpx.get(f"{engine.url}/version")
                break
            except httpx.TransportError:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "the engine did not come up"
                time.sleep(0.05)
        yield engine
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
