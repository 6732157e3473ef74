"""Production metrics read from the pods themselves, for clusters without Prometheus."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

import httpx
import numpy as np

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import EngineReading, Family, GpuWindow
from kneekeeper.domain.observation import (
    Demand,
    EngineMetrics,
    PodView,
    ProductionHistory,
    Unreachable,
    ViolationShare,
)
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.observe.engine_http import EngineUnreachable
from kneekeeper.observe.engine_metrics import ENDED, TTFT, Buckets, MetricsMissing, engine_metrics, is_possible, scrape
from kneekeeper.observe.engine_readings import reading_of
from kneekeeper.observe.exposition import Sample
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.violations import Ended, ended, targets_of, violation_share

MOST_PODS = 16
"""More than these would make the operator a monitoring system: Prometheus is for that."""

FRESH_S = 1.0
"""Within one tick a scrape is used again."""

SHORTEST_RATE_S = 60.0
"""A peak is that of a minute at least."""

SPACING_S = 15.0
LONGEST_MEMORY_S = 3700.0
"""Scrapes are remembered this long, at this distance: some 250 a pod."""

MOST_SCRAPES = 20_000
LEAST_SCRAPES = 3
"""All pods together are remembered by so many, of some five KiB: of a fleet of thousands of pods, less of each."""

MOST_READINGS = 40
"""For a diagnosis: ten minutes where a profile ticks often, the last hour where it is quiet."""


@dataclass(frozen=True, slots=True)
class _Scrape:
    at_s: float
    metrics: EngineMetrics | MetricsMissing
    reading: EngineReading
    ended: Ended | None

    def buckets(self, family: str) -> Buckets | None:
        found = self.reading.histograms.get(Family(family))
        return None if found is None else dict(zip(found.bounds, found.cumulative, strict=True))


def _digest(at_s: float, samples: tuple[Sample, ...]) -> _Scrape:
    """What of a scrape is worth remembering."""
    metrics: EngineMetrics | MetricsMissing
    try:
        metrics = engine_metrics(samples)
    except MetricsMissing as error:
        metrics = error
    reasons = [
        (s.labels.get("finished_reason", ""), s.value) for s in samples if s.name == ENDED and is_possible(s.value)
    ]
    return _Scrape(at_s, metrics, reading_of(at_s, samples), ended(reasons) if reasons else None)


class DirectSource:
    """Scrapes the pods and remembers earlier scrapes, so that what was counted between two is known."""

    def __init__(self, http: httpx.AsyncClient, clock: Callable[[], float] = monotonic) -> None:
        self._http = http
        self._clock = clock
        self._forgot_s = -math.inf
        self._history: dict[str, deque[_Scrape]] = {}  # by pod uid, oldest first

    async def engine_metrics(self, serving: ServingPods) -> Mapping[str, EngineMetrics | Unreachable]:
        """The numbers of the first 16 pods; each other pod is Unreachable, with the next step."""
        read = serving.pods[:MOST_PODS]
        found: dict[str, EngineMetrics | Unreachable] = {
            pod.name: Unreachable(f"without Prometheus only {MOST_PODS} pods are read; set spec.metrics")
            for pod in serving.pods[MOST_PODS:]
        }
        answers = await asyncio.gather(*(self._read(pod, serving) for pod in read))
        return found | {pod.name: answer for pod, answer in zip(read, answers, strict=True)}

    async def violation_share(self, serving: ServingPods, slo: Slo, window_s: float) -> ViolationShare | None:
        """What was counted since the scrape that is nearest to `window_s` ago, at most.

        None while no pod was scraped twice. Raises MetricsUnreachable when no pod answers.
        """
        read = serving.pods[:MOST_PODS]
        answers = await asyncio.gather(*(self._read(pod, serving) for pod in read))
        silent = [answer for answer in answers if isinstance(answer, Unreachable)]
        if read and len(silent) == len(read):
            raise MetricsUnreachable(f"pods of {serving.namespace}", silent[0].why)
        heard = [p for p, answer in zip(read, answers, strict=True) if not isinstance(answer, Unreachable)]
        histograms: dict[str, Buckets] = {}
        seen_s = max((self._span_s(pod, window_s) for pod in heard), default=0.0)
        for family in targets_of(slo):
            counted = [self._counted(pod, family, window_s) for pod in heard]
            known = [histogram for histogram in counted if histogram is not None]
            if not known:
                return None
            bounds = {bound for histogram in known for bound in histogram}
            histograms[family] = {b: math.fsum(h.get(b, 0.0) for h in known) for b in bounds}
        if slo.availability is None:
            return violation_share(slo, histograms, seen_s)
        of_pods = [each for each in (self._ended(pod, window_s) for pod in heard) if each is not None]
        if not of_pods:
            return None
        all_pods = Ended(math.fsum(each.all for each in of_pods), math.fsum(each.failed for each in of_pods))
        return violation_share(slo, histograms, seen_s, all_pods)

    async def demand(self, serving: ServingPods) -> Demand | None:
        """From the scrapes that are remembered; it makes none."""
        histories = [self._history.get(pod.uid, deque()) for pod in serving.pods[:MOST_PODS]]
        counts = [_first_tokens(history) for history in histories]
        known = [(times, values) for times, values in counts if len(times) > 1]
        if not known:
            return None
        edges = np.unique(np.concatenate([times for times, _ in known]))
        kept = [float(edges[0])]
        for edge in edges[1:]:
            if edge - kept[-1] >= SHORTEST_RATE_S:
                kept.append(float(edge))
        if len(kept) < 2:
            return None
        served = np.sum([np.interp(kept, times, values) for times, values in known], axis=0)
        return Demand(float(np.max(np.diff(served) / np.diff(kept))))

    async def readings(self, serving: ServingPods) -> Mapping[str, tuple[EngineReading, ...]]:
        """From the newest scrapes that are remembered; it makes none."""
        histories = {pod.name: self._history.get(pod.uid, deque()) for pod in serving.pods[:MOST_PODS]}
        return {
            name: tuple(scrape_.reading for scrape_ in list(history)[-MOST_READINGS:])
            for name, history in histories.items()
            if history
        }

    async def gpu_windows(self, serving: ServingPods) -> Mapping[str, GpuWindow]:
        """Nothing: the exporter runs on the node, not in the pods."""
        return {}

    async def history(self, serving: ServingPods) -> ProductionHistory | None:
        """None: an hour of scrapes at the distance of ticks is no history."""
        return None

    async def records(self, serving: ServingPods) -> tuple[EngineRecord, ...] | None:
        """None, as of history."""
        return None

    async def _read(self, pod: PodView, serving: ServingPods) -> EngineMetrics | Unreachable:
        if not pod.ip:
            return Unreachable("the pod has no address yet")
        try:
            metrics = (await self._scrape(pod, serving)).metrics
        except EngineUnreachable as error:
            return Unreachable(str(error))
        return Unreachable(str(metrics)) if isinstance(metrics, MetricsMissing) else metrics

    async def _scrape(self, pod: PodView, serving: ServingPods) -> _Scrape:
        now_s = self._clock()
        history = self._history.get(pod.uid)
        if history and now_s - history[-1].at_s < FRESH_S:
            return history[-1]
        newest = _digest(now_s, await scrape(self._http, pod.ip, serving.port, serving.scheme))
        # Others were scraped meanwhile: what was remembered then may have been forgotten since.
        history = self._history.setdefault(pod.uid, deque())
        if len(history) > 1 and history[-1].at_s - history[-2].at_s < SPACING_S:
            history.pop()
        history.append(newest)
        self._forget(now_s)
        return newest

    def _forget(self, now_s: float) -> None:
        """Scrapes beyond memory go, and with them the pods that are gone."""
        if now_s - self._forgot_s < SPACING_S:
            return
        self._forgot_s = now_s
        most = max(LEAST_SCRAPES, MOST_SCRAPES // len(self._history))
        for uid, history in list(self._history.items()):
            while history and (len(history) > most or now_s - history[0].at_s > LONGEST_MEMORY_S):
                history.popleft()
            if not history:
                del self._history[uid]

    def _span_s(self, pod: PodView, window_s: float) -> float:
        history = self._history.get(pod.uid, deque())
        return 0.0 if len(history) < 2 else history[-1].at_s - _oldest_within(history, window_s).at_s

    def _counted(self, pod: PodView, family: str, window_s: float) -> Buckets | None:
        """Requests between the chosen scrapes; None where there are no two. Raises MetricsMissing."""
        history = self._history.get(pod.uid)
        if not history or len(history) < 2:
            return None
        newest, oldest = history[-1], _oldest_within(history, window_s)
        after, before = newest.buckets(family), oldest.buckets(family)
        if after is None:
            raise MetricsMissing([family])
        restarted = before is None or before[math.inf] > after[math.inf]
        earlier: Buckets = {} if before is None or restarted else before
        return {bound: count - earlier.get(bound, 0.0) for bound, count in after.items()}

    def _ended(self, pod: PodView, window_s: float) -> Ended | None:
        """Requests between the chosen scrapes; None where there are no two. Raises MetricsMissing."""
        history = self._history.get(pod.uid)
        if not history or len(history) < 2:
            return None
        after, before = history[-1].ended, _oldest_within(history, window_s).ended
        if after is None:
            raise MetricsMissing([ENDED])
        if before is None or before.all > after.all:  # the engine began anew
            return after
        return Ended(after.all - before.all, after.failed - before.failed)


def _first_tokens(history: deque[_Scrape]) -> tuple[list[float], list[float]]:
    """When the pod was looked at, and how many requests had got their first token since the first look."""
    times: list[float] = []
    served: list[float] = []
    last: float | None = None
    for scrape_ in history:
        histogram = scrape_.buckets(TTFT)
        if histogram is None:
            continue
        count = histogram[math.inf]
        new = 0.0 if last is None else count - last if count >= last else count
        times.append(scrape_.at_s)
        served.append((served[-1] if served else 0.0) + new)
        last = count
    return times, served


def _oldest_within(history: deque[_Scrape], window_s: float) -> _Scrape:
    """Between ticks that lie further apart than the window, the last scrape but one is all there is."""
    newest = history[-1]
    within = [s for s in history if s is not newest and newest.at_s - s.at_s <= window_s]
    return within[0] if within else history[-2]
