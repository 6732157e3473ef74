"""A scrape of an engine as a reading for the diagnosis: every family by its present name, whatever the release."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kneekeeper.domain.diagnose.reading import Counter, EngineReading, Family, Gauge, Histogram
from kneekeeper.domain.metric_names import NAME_PREFIX
from kneekeeper.observe.engine_metrics import KV_USAGES, OLD_PREFIX, buckets, is_possible, total
from kneekeeper.observe.exposition import Sample

NAME = re.compile(f"^{NAME_PREFIX}")

_OLDER_COUNTERS = {counter: f"{OLD_PREFIX}{counter}" for counter in (Counter.PREFIX_QUERIES, Counter.PREFIX_HITS)}
_OLDER_FAMILIES = {Family.ITL: "time_per_output_token_seconds"}
"""Up to vLLM 0.11 the gaps between tokens had this name; both are histograms of gaps."""

_ENGINE_LABELS = ("pod", "instance", "engine", "model_name")


def reading_of(at_s: float, samples: Sequence[Sample]) -> EngineReading:
    """What there is; families that are absent, or hold no finite number, are not in it."""
    gauges = {Gauge.RUNNING: total(samples, Gauge.RUNNING), Gauge.WAITING: total(samples, Gauge.WAITING)}
    gauges[Gauge.KV_USAGE] = _kv_usage(samples)
    counters = {counter: _counter(samples, counter) for counter in Counter}
    histograms = {family: _histogram(samples, family) for family in Family}
    running = {tuple(s.labels.get(label, "") for label in _ENGINE_LABELS) for s in samples if s.name == Gauge.RUNNING}
    return EngineReading(
        at_s=at_s,
        gauges={gauge: value for gauge, value in gauges.items() if value is not None},
        counters={counter: value for counter, value in counters.items() if value is not None},
        histograms={family: value for family, value in histograms.items() if value is not None},
        engines=max(1, len(running)),
    )


def readings_of_matrix(matrix: Iterable[Mapping[str, Any]]) -> tuple[EngineReading, ...]:
    """The readings of one engine from a range vector of Prometheus, which has all of a scrape at one time.

    A pod that two jobs scrape has its scrapes in turn, so only the job that saw most is read.
    """
    by_job: dict[tuple[str, str], dict[float, list[Sample]]] = {}
    for row in matrix:
        labels = row["metric"]
        scrapes = by_job.setdefault((labels.get("job", ""), labels.get("instance", "")), {})
        name = NAME.sub("", labels.get("__name__", ""))
        for at_s, value in row["values"]:
            scrapes.setdefault(float(at_s), []).append(Sample(name, labels, float(value)))
    if not by_job:
        return ()
    scrapes = max(by_job.values(), key=len)
    return tuple(reading_of(at_s, scrapes[at_s]) for at_s in sorted(scrapes))


@functools.lru_cache(maxsize=256)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """The same object for the same bounds: thousands of readings are kept."""
    return bounds


def _kv_usage(samples: Sequence[Sample]) -> float | None:
    """Of the fullest rank."""
    usages = [sample.value for sample in samples if sample.name in KV_USAGES]
    return max(usages) if usages and all(map(is_possible, usages)) else None


def _counter(samples: Sequence[Sample], counter: Counter) -> float | None:
    value = total(samples, counter)
    older = _OLDER_COUNTERS.get(counter)
    return total(samples, older) if value is None and older is not None else value


def _histogram(samples: Sequence[Sample], family: Family) -> Histogram | None:
    for name in (str(family), _OLDER_FAMILIES.get(family)):
        counts = buckets(samples, name) if name is not None else None
        values = total(samples, f"{name}_sum")
        if counts is not None and values is not None:
            bounds = _shared(tuple(sorted(counts)))
            same: dict[float, float] = {}  # most buckets of an engine that is well are equal
            return Histogram(bounds, tuple(same.setdefault(counts[b], counts[b]) for b in bounds), values)
    return None
