"""What this process holds, and what the cluster holds of ours."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kneekeeper.domain.names import LABEL_RUN
from kneekeeper.handlers.beats import Beats
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVING_PROFILES, TUNING_RUNS
from tests.soak.service import HISTORY_LIMIT

_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True)
class Day:
    """As it stands when the day is over; counts are since the beginning."""

    day: int
    objects: int
    """Of the operator in the cluster: profiles, runs and their children."""
    remembered: int
    """Entries about objects in the operator's memory."""
    rss_mib: float
    open_files: int
    tasks: int
    runs: int
    retunes: int
    rollbacks: int
    calls: int
    promised: float
    broken: float


def usage_of_this_process(day: int, **counts: float) -> Day:
    """After the garbage was collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(list(Path("/proc/self/fd").iterdir()))
    told = {"rss_mib": round(pages * _PAGE_MIB, 1), "open_files": files, "tasks": len(asyncio.all_tasks())}
    return Day(day, **told, **counts)  # type: ignore[arg-type]


def remembered(beats: Beats) -> int:
    """Entries about objects in all that the operator carries from look to look."""
    memories = (beats.agenda, beats.hearing, beats.queue)
    return sum(len(known) for memory in memories for known in vars(memory).values() if hasattr(known, "__len__"))


async def objects_of(kube: Kube, namespaces: Sequence[str]) -> tuple[int, int]:
    """How many there are of ours, and how many finished runs a profile has beyond its limit."""
    count, beyond = 0, 0
    for namespace in namespaces:
        runs = await kube.list(TUNING_RUNS, namespace)
        finished = [run for run in runs if (run.get("status") or {}).get("finishedAt")]
        beyond = max(beyond, len(finished) - HISTORY_LIMIT)
        count += len(runs) + len(await kube.list(SERVING_PROFILES, namespace))
        for kind in (PODS, JOBS, SECRETS, CONFIG_MAPS):
            count += len(await kube.list(kind, namespace, labels=LABEL_RUN))
    return count, beyond
