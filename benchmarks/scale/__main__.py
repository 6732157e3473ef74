"""`python -m benchmarks.scale`: the operator with 10, 100 and 1,000 idle profiles, and how soon it reacts.

The last line of output is JSON with the numbers of the largest fleet that was measured, those of all fleets under
`fleets`, how they grow and whether they keep to the bars under `verdict`, and under `not_measured` the sizes that this
machine could not carry, with why. The API server, etcd and the pods' metrics run on the same machine as the operator:
a fleet that was measured while the machine was full says so (`machine_full`), since then times are the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.scale.fleet import PODS_OF_A_PROFILE, Fleet, engine, name_of, namespace_of
from benchmarks.scale.usage import machine_usage, usage_of
from benchmarks.scale.verdict import verdict
from e2e.cluster import control_plane
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import KubeError
from kneekeeper.kube.resources import SERVING_PROFILES
from kneekeeper.kube.watch import WatchEvent, list_page, watch
from tests.integration.operator_process import OperatorProcess, awaited_operator
from tests.integration.patient import PatientKube
from tests.integration.place import make_place

_STARTS_WITHIN_S = 900.0
_SETTLED_S = 600.0
_SETTLED_OF_A_PROFILE_S = 1.5
_QUIET_S = 20.0
_LOOKS_S = 250.0
"""An idle profile is looked at about so often."""
_BETWEEN_CHANGES_S = 0.5
_LATEST_REACTION_S = 120.0
_FULL = 0.2
"""Of the time in which some task waited for a core, by the kernel's pressure stall information."""


@dataclass(frozen=True)
class Measured:
    """One fleet."""

    profiles: int
    pods: int
    cpu_cores: float
    """Of the idle operator."""
    rss_mib: float
    """After the fleet was read, looked at, and changed."""
    idle_calls_per_profile_minute: float
    reaction_p99_s: float
    """From a change of a profile to the status that tells of it."""
    reaction_p50_s: float
    start_s: float
    """Until every profile was looked at once after a start."""
    start_cpu_s: float
    threads: int
    files: int
    machine_full: bool
    """Whether somebody had to wait for a core of this machine while the operator idled."""
    machine_busy_cores: float
    """Of everybody on it, in the same time."""


@dataclass(frozen=True)
class NotMeasured:
    """A size that this machine could not carry."""

    profiles: int
    why: str


def main() -> int:
    """0 when the measurement was taken; judging it is for the reader."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--profiles", default="10,100,1000", help="sizes of the fleet, ascending")
    parser.add_argument("--window", type=float, default=300.0, help="seconds of idling that are measured")
    parser.add_argument("--changes", type=int, default=100, help="profiles that are changed, at most")
    wanted = parser.parse_args()
    sizes = [int(size) for size in wanted.profiles.split(",")]
    with control_plane() as server, engine() as port:
        measured, failed = asyncio.run(_measure(server.kubeconfig, port, sizes, wanted.window, wanted.changes))
    fleets = [asdict(each) for each in measured]
    told = {"fleets": fleets, "verdict": verdict(fleets), "not_measured": [asdict(each) for each in failed]}
    print(json.dumps((fleets[-1] if fleets else {}) | told))
    return 0 if measured else 1


async def _measure(
    kubeconfig: Path, port: int, sizes: list[int], window_s: float, changes: int
) -> tuple[list[Measured], list[NotMeasured]]:
    measured: list[Measured] = []
    async with await PatientKube.connect("scale", str(kubeconfig)) as kube:
        await make_place(kube)
        fleet = Fleet(kube, port)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "operator.log"
            with awaited_operator(kubeconfig, log, _STARTS_WITHIN_S):
                await fleet.learn_fingerprint()
            for position, size in enumerate(sizes):
                began = time.monotonic()
                try:
                    await fleet.grow(size)
                    print(f"{size} profiles made in {time.monotonic() - began:.0f} s", flush=True)
                    began = time.monotonic()
                    with awaited_operator(kubeconfig, log, _STARTS_WITHIN_S) as operator:
                        measured.append(await _one(kube, operator, size, began, window_s, changes))
                except (TimeoutError, KubeError, httpx.HTTPError) as error:
                    why = f"{str(error) or type(error).__name__}, after {time.monotonic() - began:.0f} s"
                    return measured, [NotMeasured(each, why) for each in sizes[position:]]
                print(json.dumps(asdict(measured[-1])), flush=True)
    return measured, []


async def _one(
    kube: Kube, operator: OperatorProcess, size: int, began: float, window_s: float, changes: int
) -> Measured:
    pid, port = operator.process.pid, operator.metrics_port
    await _looked_at_all(operator, size)
    start_s, started = time.monotonic() - began, usage_of(pid, port)
    before, since, machine = usage_of(pid, port), time.monotonic(), machine_usage()
    await asyncio.sleep(window_s)
    after, passed_s, machine_after = usage_of(pid, port), time.monotonic() - since, machine_usage()
    reactions = await _reactions(kube, size, min(size, changes))
    last = usage_of(pid, port)
    return Measured(
        profiles=size,
        pods=size * PODS_OF_A_PROFILE,
        cpu_cores=round((after.cpu_s - before.cpu_s) / passed_s, 3),
        rss_mib=round(last.rss_mib, 1),
        idle_calls_per_profile_minute=round((after.calls - before.calls) / size / (passed_s / 60), 3),
        reaction_p99_s=round(float(np.percentile(reactions, 99)), 2),
        reaction_p50_s=round(float(np.percentile(reactions, 50)), 2),
        start_s=round(start_s, 1),
        start_cpu_s=round(started.cpu_s, 1),
        threads=last.threads,
        files=last.files,
        machine_full=machine_after.waited_share(machine) > _FULL,
        machine_busy_cores=round(machine_after.busy_cores(machine), 2),
    )


async def _looked_at_all(operator: OperatorProcess, size: int) -> None:
    """Returns when each profile was looked at, and nothing more happens than idling. Raises TimeoutError."""
    patience_s = _SETTLED_S + _SETTLED_OF_A_PROFILE_S * size
    deadline, seen, since = time.monotonic() + patience_s, 0, time.monotonic()
    while time.monotonic() < deadline:
        await asyncio.sleep(_QUIET_S)
        try:
            ticks, now = operator.ticks("ServingProfile"), time.monotonic()
        except httpx.HTTPError:
            continue  # it is too busy to tell
        # Some profiles are looked at at any time, the more the larger the fleet.
        idle = 2 + 1.5 * size * (now - since) / _LOOKS_S
        if ticks >= size and ticks - seen <= idle:
            return
        seen, since = ticks, now
    raise TimeoutError(f"no rest: {seen} looks at {size} profiles in {patience_s:.0f} s")


async def _reactions(kube: Kube, size: int, changes: int) -> list[float]:
    """Seconds from each of so many changes, spread over the fleet, to the status that tells of it."""
    waits: dict[tuple[str, str], tuple[int, float]] = {}
    reactions: list[float] = []
    async with _statuses(kube) as statuses:
        changing = asyncio.create_task(_change(kube, size, changes, waits))
        deadline = time.monotonic() + changes * _BETWEEN_CHANGES_S + _LATEST_REACTION_S
        while len(reactions) < changes and time.monotonic() < deadline:
            try:
                namespace, name, generation = await asyncio.wait_for(statuses.get(), 1.0)
            except TimeoutError:
                continue
            waited = waits.get((namespace, name))
            if waited is not None and generation >= waited[0]:
                reactions.append(time.monotonic() - waited[1])
                del waits[namespace, name]
        await changing
    return reactions + [_LATEST_REACTION_S] * (changes - len(reactions))


async def _change(kube: Kube, size: int, changes: int, waits: dict[tuple[str, str], tuple[int, float]]) -> None:
    for index in range(changes):
        number = index * size // changes
        namespace, name = namespace_of(number), name_of(number)
        began = time.monotonic()
        limit = 1 + size.bit_length()  # another one for every fleet
        patch = [{"op": "add", "path": "/spec/runHistoryLimit", "value": limit}]
        stored = await kube.json_patch(SERVING_PROFILES, namespace, name, patch)
        waits[namespace, name] = int(stored["metadata"]["generation"]), began
        await asyncio.sleep(_BETWEEN_CHANGES_S)


@asynccontextmanager
async def _statuses(kube: Kube) -> AsyncIterator[asyncio.Queue[tuple[str, str, int]]]:
    """Namespace, name and observed generation of every profile that changes."""
    told: asyncio.Queue[tuple[str, str, int]] = asyncio.Queue()
    _, version = await list_page(kube, SERVING_PROFILES, "")

    async def listen() -> None:
        async for event in watch(kube, SERVING_PROFILES, "", version):
            if event.type is WatchEvent.Type.MODIFIED:
                metadata, status = event.object["metadata"], event.object.get("status") or {}
                told.put_nowait((metadata["namespace"], metadata["name"], status.get("observedGeneration", 0)))

    listening = asyncio.create_task(listen())
    try:
        yield told
    finally:
        listening.cancel()


if __name__ == "__main__":
    sys.exit(main())
