"""Production metrics by a few aggregated queries to a Prometheus server."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Counter, EngineReading, Family, Gauge, GpuWindow
from kneekeeper.domain.observation import Demand, EngineMetrics, Unreachable, ViolationShare
from kneekeeper.observe.direct import MOST_PODS
from kneekeeper.observe.engine_metrics import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    GENERATED,
    NAME_PREFIX,
    PREEMPTIONS,
    RUNNING,
    TTFT,
    WAITING,
    Buckets,
)
from kneekeeper.observe.engine_readings import readings_of_matrix
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.violations import targets_of, violation_share

CONNECT_TIMEOUT_S = 3.0
QUERY_TIMEOUT_S = 10.0
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


class InstantQueries(Protocol):
    """What is used of `PrometheusConnect`: one instant query, synchronous."""

    def custom_query(self, query: str) -> list[dict[str, Any]]:
        """The result vector."""


class PrometheusSource:
    """A Prometheus server. Its client is synchronous, so each query runs in a thread, one at a time."""

    def __init__(self, url: str, queries: InstantQueries | None = None) -> None:
        self._url = url.rstrip("/")
        self._queries = queries if queries is not None else _connect(self._url)
        self._one_at_a_time = asyncio.Lock()  # a requests session is not safe between threads

    async def engine_metrics(self, serving: ServingPods) -> Mapping[str, EngineMetrics | Unreachable]:
        """One query a family for all pods. The size of the KV cache is not asked for."""
        if not serving.pods:
            return {}
        by_family = {family: await self._by_pod(family, serving) for family in (*_ENGINE_FAMILIES, *_OPTIONAL_FAMILIES)}
        return {pod.name: self._of_pod(pod.name, by_family) for pod in serving.pods}

    async def violation_share(self, serving: ServingPods, slo: Slo, window_s: float) -> ViolationShare | None:
        """From the increase of the histograms. Raises MetricsMissing where a histogram has no series."""
        if not serving.pods:
            return None
        histograms: dict[str, Buckets] = {}
        for family in targets_of(slo):
            counts = await self._increase(family, serving, window_s)
            if counts:
                histograms[family] = counts
        return violation_share(slo, histograms, window_s)

    async def demand(self, serving: ServingPods) -> Demand | None:
        """The peak of a day of five-minute rates of first tokens, over the pods of today."""
        if not serving.pods:
            return None
        each = f"rate({series(f'{TTFT}_count', serving)}[5m])"
        query = f"max_over_time(sum(max by (pod, engine, model_name) ({each}))[1d:5m])"
        peaks = [float(r["value"][1]) for r in await self._query(query)]
        return Demand(peaks[0]) if peaks and math.isfinite(peaks[0]) else None

    async def readings(self, serving: ServingPods) -> Mapping[str, tuple[EngineReading, ...]]:
        """Raw samples of the last twenty minutes as Prometheus scraped them, one query for each of the first pods."""
        found: dict[str, tuple[EngineReading, ...]] = {}
        for pod in serving.pods[:MOST_PODS]:
            one = ServingPods(serving.namespace, (pod,), serving.port)
            answer = await self._query(f"{series(_DIAGNOSED, one)}[{READINGS_WINDOW_S}s]")
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

    async def _of_gpus(self, name: str, serving: ServingPods) -> dict[str, float]:
        found: dict[str, float] = {}
        pods = _quoted("|".join(re.escape(pod.name) for pod in serving.pods))
        for prefix in ("exported_", ""):
            selector = f'{name}{{{prefix}namespace="{_quoted(serving.namespace)}",{prefix}pod=~"{pods}"}}'
            query = f"avg by ({prefix}pod) (avg_over_time({selector}[{GPU_WINDOW_S}s]))"
            for row in await self._query(query):
                value = float(row["value"][1])
                if math.isfinite(value):
                    found[row["metric"].get(f"{prefix}pod", "")] = value
        return found

    def _of_pod(self, pod: str, by_family: Mapping[str, Mapping[str, float]]) -> EngineMetrics | Unreachable:
        missing = [family for family in _ENGINE_FAMILIES if pod not in by_family[family]]
        if missing:
            why = f"{self._url} has no {', '.join(missing)} of this pod; check that it is scraped"
            return Unreachable(why)
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
        # `max` first: a pod that two jobs scrape must not count twice.
        query = f"sum by (pod) (max by (pod, engine, model_name) ({series(family, serving)}))"
        values = {r["metric"].get("pod", ""): float(r["value"][1]) for r in await self._query(query)}
        return {pod: value for pod, value in values.items() if math.isfinite(value)}

    async def _increase(self, family: str, serving: ServingPods, window_s: float) -> dict[float, float]:
        window = f"[{max(1, round(window_s))}s]"
        each = f"increase({series(f'{family}_bucket', serving)}{window})"
        query = f"sum by (le) (max by (le, pod, engine, model_name) ({each}))"
        found = [(r["metric"].get("le", ""), float(r["value"][1])) for r in await self._query(query)]
        return {float(le): value for le, value in found if le and math.isfinite(value)}

    async def _query(self, query: str) -> list[dict[str, Any]]:
        try:
            async with self._one_at_a_time, asyncio.timeout(2 * QUERY_TIMEOUT_S):
                return await asyncio.to_thread(self._queries.custom_query, query)
        except TimeoutError:
            raise MetricsUnreachable(self._url, "it did not answer in time") from None
        except requests.RequestException as error:
            raise MetricsUnreachable(self._url, type(error).__name__) from error
        except PrometheusApiClientException as error:
            # The exception's text holds the answer's body, which may be anything.
            code = re.search(r"HTTP Status Code (\d{3})", str(error))
            why = f"HTTP {code[1]}" if code else "an error"
            raise MetricsUnreachable(self._url, f"it answered with {why}") from None
        except (KeyError, ValueError):
            raise MetricsUnreachable(self._url, "its answer is not one of Prometheus") from None


def series(name: str, serving: ServingPods) -> str:
    """A selector for one vLLM metric, under any of its prefixes, of these pods."""
    pods = "|".join(re.escape(pod.name) for pod in serving.pods)
    return (
        "{"
        + ",".join(
            (
                f'__name__=~"{_quoted(NAME_PREFIX + name)}"',
                f'namespace="{_quoted(serving.namespace)}"',
                f'pod=~"{_quoted(pods)}"',
            )
        )
        + "}"
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _connect(url: str) -> InstantQueries:
    session = requests.Session()
    session.max_redirects = 0
    # A tick that failed is simply done again, so the library's own retries would only hold it up.
    client: InstantQueries = PrometheusConnect(
        url=url,
        session=session,
        retry=Retry(total=0),
        timeout=(CONNECT_TIMEOUT_S, QUERY_TIMEOUT_S),
        method="POST",
    )
    return client
