"""The operator as it runs in its pod: a process of its own that knows its API server from KUBECONFIG."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx

_START_S = 180.0
_STOP_S = 30.0
_POLL_S = 0.1
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class OperatorProcess:
    """An operator that answered its health check once."""

    process: subprocess.Popen[bytes]
    health_port: int
    metrics_port: int
    log: Path

    def is_running(self) -> bool:
        return self.process.poll() is None

    def is_healthy(self) -> bool:
        """What the liveness probe would say."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def ticks(self, kind: str) -> int:
        """How many objects of the kind were looked at so far, as the operator's own metrics count."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10).text
        found = re.search(rf'^kneekeeper_tick_duration_seconds_count{{kind="{kind}"}} (\S+)$', text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def stop(self) -> None:
        """As kubelet does: asks, then kills."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_S)


@contextmanager
def running_operator(kubeconfig: Path, log: Path, **settings: str) -> Iterator[OperatorProcess]:
    """It is healthy when the block begins, and stopped as a pod is when the block ends. Raises TimeoutError.

    `settings` are KNEEKEEPER_ variables without the prefix, in small letters.
    """
    with awaited_operator(kubeconfig, log, _START_S, settings) as operator:
        yield operator


@contextmanager
def awaited_operator(
    kubeconfig: Path, log: Path, starts_within_s: float, settings: Mapping[str, str] = _NO_SETTINGS
) -> Iterator[OperatorProcess]:
    """The same on a machine that may take longer to start it."""
    health, metrics = _free_port(), _free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KNEEKEEPER_")},
        "KUBECONFIG": str(kubeconfig),
        "KNEEKEEPER_IMAGE": "registry.example.com/kneekeeper:1",
        "KNEEKEEPER_PRIORITY_CLASS": "kneekeeper-probe",
        "KNEEKEEPER_HEALTH_PORT": str(health),
        "KNEEKEEPER_METRICS_PORT": str(metrics),
        **{f"KNEEKEEPER_{name.upper()}": value for name, value in settings.items()},
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kneekeeper.handlers"], env=environment, stdout=output, stderr=output
        )
    operator = OperatorProcess(process, health, metrics, log)
    try:
        _await_health(operator, starts_within_s)
        yield operator
    finally:
        operator.stop()


def _await_health(operator: OperatorProcess, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not operator.is_healthy():
        assert operator.is_running(), operator.log.read_text()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the operator is not healthy after {within_s:.0f} s: {operator.log.read_text()}")
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
