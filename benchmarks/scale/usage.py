"""What a process uses, by the kernel's count."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

_PATIENCE_S = 120.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of one process so far."""

    cpu_s: float
    rss_mib: float
    threads: int
    files: int
    calls: float
    """Of the API server, as the operator counts its own; without those of kopf's watches."""


@dataclass(frozen=True)
class MachineUsage:
    """Of all processes so far."""

    at_s: float
    busy_s: float
    waited_s: float
    """In which at least one task waited for a core."""

    def busy_cores(self, before: MachineUsage) -> float:
        return (self.busy_s - before.busy_s) / (self.at_s - before.at_s)

    def waited_share(self, before: MachineUsage) -> float:
        return (self.waited_s - before.waited_s) / (self.at_s - before.at_s)


def machine_usage() -> MachineUsage:
    """By /proc/stat, and /proc/pressure/cpu where the kernel has it."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    pressure = Path("/proc/pressure/cpu")
    found = re.search(r"^some .*total=(\d+)$", pressure.read_text(), re.MULTILINE) if pressure.exists() else None
    waited_s = int(found[1]) / 1e6 if found else 0.0
    return MachineUsage(time.monotonic(), (sum(fields) - idle) / _TICKS_PER_S, waited_s)


def usage_of(pid: int, metrics_port: int) -> Usage:
    """Of the operator with this process id and port of metrics."""
    process = Path(f"/proc/{pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    told = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Usage(
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        rss_mib=int(told["VmRSS"].split()[0]) / 1024,
        threads=int(told["Threads"]),
        files=len(list((process / "fd").iterdir())),
        calls=_calls(metrics_port),
    )


def _calls(port: int) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=_PATIENCE_S).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kneekeeper_kube_requests_total"
    )
