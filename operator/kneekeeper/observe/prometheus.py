"""Production metrics by a few aggregated queries to a Prometheus server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Counter, EngineReading, Family, Gauge, GpuWindow
from kneekeeper.domain.metric_names import NAME_PREFIX
from kneekeeper.domain.observation import Demand, EngineMetrics, ProductionHistory, Unreachable, ViolationShare
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.observe.direct import MOST_PODS
from kneekeeper.observe.engine_metrics import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    ENDED,
    GENERATED,
    PREEMPTIONS,
    RUNNING,
    TTFT,
    WAITING,
    Buckets,
    is_possible,
)
from kneekeeper.observe.engine_readings import readings_of_matrix
from kneekeeper.observe.matchers import matchers_of, quoted
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.production_history import (
    MOST_SCRAPED_PODS,
    last_hours,
    read_engine_history,
    read_engine_records,
    read_traffic,
)
from kneekeeper.observe.prometheus_queries import InstantQueries, Queries
from kneekeeper.observe.violations import Ended, ended, targets_of, violation_share

OLDEST_S = 120
"""Of what counts as present. Prometheus itself tells samples that are up to five minutes old."""

READINGS_WINDOW_S = 1200
"""The newer half is diagnosed, the older one is what it is compared with."""

GPU_WINDOW_S = 600
GPU_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
_DIAGNOSED = "({})".format(
    "|".join(
        (
            *Gauge,
            "gpu_cache_usage_perc",
            *(f"(gpu_)?{counter}" for counter in Counter),
            *(f"{family}_(bucket|sum|count)" for family in (*Family, "time_per_output_token_seconds")),
        )
    )
)
"""What `observe/engine_readings.py` reads, by its present and older names."""

_ENGINE_FAMILIES = (RUNNING, WAITING, GENERATED, PREEMPTIONS)
_OPTIONAL_FAMILIES = (DRAFT_TOKENS, ACCEPTED_TOKENS)
"""Engines that do not decode speculatively have none of these."""


class PrometheusSource:
    """A Prometheus server, asked for aggregates of the target's pods."""

    def __init__(self, url: str, client: InstantQueries | None = None) -> None:
        self._queries = Queries(url, client)
        self._more = ""

    def narrowed(self, match_labels: Mapping[str, str]) -> PrometheusSource:
        """The same server, asked for series with these labels alone."""
        narrow = copy(self)
        narrow._more = matchers_of(match_labels)
        return narrow

    def _series(self, name: str, serving: ServingPods) -> str:
        return series(name, serving, self._more)

    async def engine_metrics(self, serving: ServingPods) -> Mapping[str, EngineMetrics | Unreachable]:
        """One query a family for all pods. The size of the KV cache is not asked for."""
        if not serving.pods:
            return {}
        by_family = {family: await self._by_pod(family, serving) for family in (*_ENGINE_FAMILIES, *_OPTIONAL_FAMILIES)}
        return {pod.name: self._of_pod(pod.name, by_family) for pod in serving.pods}

    async def violation_share(self, serving: ServingPods, slo: Slo, window_s: float) -> ViolationShare | None:
        """From the increase of the histograms and counters. Raises MetricsMissing where one has no series."""
        if not serving.pods:
            return None
        histograms: dict[str, Buckets] = {}
        for family in targets_of(slo):
            counts = await self._increase(family, serving, window_s)
            if counts:
                histograms[family] = counts
        counted = await self._ended(serving, window_s) if slo.availability is not None else None
        return violation_share(slo, histograms, window_s, counted)

    async def demand(self, serving: ServingPods) -> Demand | None:
        """The peak of a day of five-minute rates of first tokens, over the pods of today."""
        if not serving.pods:
            return None
        each = f"rate({self._series(f'{TTFT}_count', serving)}[5m])"
        query = f"max_over_time(sum(max by (pod, engine, model_name) ({each}))[1d:5m])"
        peaks = [float(r["value"][1]) for r in await self._queries.vector(query)]
        return Demand(peaks[0]) if peaks and is_possible(peaks[0]) else None

    async def readings(self, serving: ServingPods) -> Mapping[str, tuple[EngineReading, ...]]:
        """Raw samples of the last twenty minutes as Prometheus scraped them, one query for each of the first pods."""
        found: dict[str, tuple[EngineReading, ...]] = {}
        for pod in serving.pods[:MOST_PODS]:
            one = ServingPods(serving.namespace, (pod,), serving.port)
            answer = await self._queries.matrix(f"{self._series(_DIAGNOSED, one)}[{READINGS_WINDOW_S}s]")
            found[pod.name] = readings_of_matrix(answer)
        return found

    async def gpu_windows(self, serving: ServingPods) -> Mapping[str, GpuWindow]:
        """Mean utilization by pod; with `honorLabels: false` the exporter's pod is `exported_pod`."""
        if not serving.pods:
            return {}
        used = await self._of_gpus(GPU_UTILIZATION, serving)
        active = await self._of_gpus(SM_ACTIVE, serving)
        return {
            pod.name: GpuWindow(used[pod.name] / 100 if pod.name in used else None, active.get(pod.name))
            for pod in serving.pods
            if pod.name in used or pod.name in active
        }

    async def history(self, serving: ServingPods) -> ProductionHistory | None:
        """Over the pods of today; aggregated by the server."""
        if not serving.pods:
            return None
        few = replace(serving, pods=serving.pods[:MOST_SCRAPED_PODS])
        ask = self._queries.matrix
        engines = await read_engine_history(ask, lambda name: self._series(name, serving))
        traffic = await read_traffic(
            ask,
            lambda name: self._series(name, serving),
            lambda name: self._series(name, few),
            last_hours(len(few.pods)),
        )
        return ProductionHistory(engines, traffic)

    async def records(self, serving: ServingPods) -> tuple[EngineRecord, ...] | None:
        """Over the pods of today; aggregated by the server."""
        return await read_engine_records(self._queries.matrix, lambda name: self._series(name, serving))

    async def _of_gpus(self, name: str, serving: ServingPods) -> dict[str, float]:
        found: dict[str, float] = {}
        pods = quoted("|".join(re.escape(pod.name) for pod in serving.pods))
        for prefix in ("exported_", ""):
            selector = f'{name}{{{prefix}namespace="{quoted(serving.namespace)}",{prefix}pod=~"{pods}"{self._more}}}'
            query = f"avg by ({prefix}pod) (avg_over_time({selector}[{GPU_WINDOW_S}s]))"
            for row in await self._queries.vector(query):
                value = float(row["value"][1])
                if is_possible(value):
                    found[row["metric"].get(f"{prefix}pod", "")] = value
        return found

    def _of_pod(self, pod: str, by_family: Mapping[str, Mapping[str, float]]) -> EngineMetrics | Unreachable:
        missing = [family for family in _ENGINE_FAMILIES if pod not in by_family[family]]
        if missing:
            names = ", ".join(missing)
            why = f"{self._queries.url} has no {names} of this pod that is newer than {OLDEST_S} s"
            return Unreachable(f"{why}; check that it is scraped at least every minute")
        return EngineMetrics(
            running=round(by_family[RUNNING][pod]),
            waiting=round(by_family[WAITING][pod]),
            kv_cache_tokens=None,
            generation_tokens_total=by_family[GENERATED][pod],
            preemptions_total=by_family[PREEMPTIONS][pod],
            draft_tokens_total=by_family[DRAFT_TOKENS].get(pod),
            accepted_tokens_total=by_family[ACCEPTED_TOKENS].get(pod),
        )

    async def _by_pod(self, family: str, serving: ServingPods) -> dict[str, float]:
        found = self._series(family, serving)
        # `max` first: a pod that two jobs scrape must not count twice.
        each = f"max by (pod, engine, model_name) ({found} and last_over_time({found}[{OLDEST_S}s]))"
        query = f"sum by (pod) ({each})"
        values = {r["metric"].get("pod", ""): float(r["value"][1]) for r in await self._queries.vector(query)}
        return {pod: value for pod, value in values.items() if is_possible(value)}

    async def _ended(self, serving: ServingPods, window_s: float) -> Ended | None:
        each = f"increase({self._series(ENDED, serving)}[{max(1, round(window_s))}s])"
        query = f"sum by (finished_reason) (max by (finished_reason, pod, engine, model_name) ({each}))"
        rows = await self._queries.vector(query)
        found = [(r["metric"].get("finished_reason", ""), float(r["value"][1])) for r in rows]
        return ended((reason, value) for reason, value in found if is_possible(value)) if found else None

    async def _increase(self, family: str, serving: ServingPods, window_s: float) -> dict[float, float]:
        window = f"[{max(1, round(window_s))}s]"
        each = f"increase({self._series(f'{family}_bucket', serving)}{window})"
        query = f"sum by (le) (max by (le, pod, engine, model_name) ({each}))"
        found = [(r["metric"].get("le", ""), float(r["value"][1])) for r in await self._queries.vector(query)]
        return {float(le): value for le, value in found if le and is_possible(value)}


def series(name: str, serving: ServingPods, more: str = "") -> str:
    """A selector for one vLLM metric, under any of its prefixes, of these pods; `more` as `matchers_of` gives it."""
    pods = "|".join(re.escape(pod.name) for pod in serving.pods)
    return (
        "{"
        + ",".join(
            (
                f'__name__=~"{quoted(NAME_PREFIX + name)}"',
                f'namespace="{quoted(serving.namespace)}"',
                f'pod=~"{quoted(pods)}"',
            )
        )
        + f"{more}}}"
    )
