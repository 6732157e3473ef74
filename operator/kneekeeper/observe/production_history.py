"""The history of production from a Prometheus server, by a few aggregated queries for all pods of a target.

Each is an instant query with a subquery, so that the server does the arithmetic and answers one number a window. The
innermost `max by` keeps a pod that two jobs scrape from counting twice.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kneekeeper.domain.diagnose.reading import Counter, Family, Gauge, Histogram
from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.traffic_history import FirstTokens, TrafficHistory, TrafficHour
from kneekeeper.observe.engine_metrics import CACHE_CONFIG, OLD_PREFIX, cache_size_tokens, is_possible

WINDOW_S = 300
DAY = "1d"
WEEK = "7d"
MOST_SCRAPED_PODS, LAST_HOURS = 16, 6
"""How bursts reach a replica shows in a few of them. Of fewer pods more hours are read, up to a day, so that as many
samples are: a variance takes many counts to be known."""

STEPS = "iteration_tokens_total"
_OLDER_GAPS = "time_per_output_token_seconds"
_OLDER_KV_USAGE = "gpu_cache_usage_perc"

Rows = list[dict[str, Any]]
Ask = Callable[[str], Awaitable[Rows]]
"""A query to the rows of its answer."""

Series = Callable[[str], str]
"""The name of a metric without its prefix to a selector of the target's pods."""


async def read_engine_history(ask: Ask, series: Series) -> tuple[EngineHistory, ...]:
    """The last day of each engine in windows of five minutes; engines without a gap between tokens have none."""
    gaps = str(Family.ITL)
    decoding = await _of_engines(ask, _rate(series(f"{gaps}_sum")))
    if not decoding:
        gaps = _OLDER_GAPS
        decoding = await _of_engines(ask, _rate(series(f"{gaps}_sum")))
    if not decoding:
        return ()
    kv_usage = await _of_engines(ask, _over("avg", series(Gauge.KV_USAGE)))
    columns = {
        "decoding": decoding,
        "gaps_per_s": await _of_engines(ask, _rate(series(f"{gaps}_count"))),
        "running": await _of_engines(ask, _over("avg", series(Gauge.RUNNING))),
        "running_sd": await _of_engines(ask, _over("stddev", series(Gauge.RUNNING))),
        "waiting": await _of_engines(ask, _over("avg", series(Gauge.WAITING))),
        "requests_per_s": await _of_engines(ask, _rate(series(f"{Family.TTFT}_count"))),
        "generated_per_s": await _of_engines(ask, _rate(series(Counter.GENERATION_TOKENS))),
        "prompted_per_s": await _of_engines(ask, _rate(series(Counter.PROMPT_TOKENS))),
        "kv_usage": kv_usage or await _of_engines(ask, _over("avg", series(_OLDER_KV_USAGE))),
        "preemptions_per_s": await _of_engines(ask, _rate(series(Counter.PREEMPTIONS))),
    }
    return tuple(_engine(key, columns) for key in sorted(decoding))


async def read_engine_records(ask: Ask, series: Series) -> tuple[EngineRecord, ...]:
    """The same with what a fit of the engine's law needs beside it: steps, prefill times, prefix hits, the cache."""
    engines = await read_engine_history(ask, series)
    if not engines:
        return ()
    steps = await _of_engines(ask, _rate(series(f"{STEPS}_count")))
    prefill_s = await _of_engines(ask, _rate(series(f"{Family.PREFILL}_sum")))
    prefills = await _of_engines(ask, _rate(series(f"{Family.PREFILL}_count")))
    queries = await _counted_by_engine(ask, series, Counter.PREFIX_QUERIES)
    hits = await _counted_by_engine(ask, series, Counter.PREFIX_HITS)
    caches = await ask(f"{series(CACHE_CONFIG)}[{WINDOW_S}s]")
    sizes = {_key(row["metric"]): cache_size_tokens(row["metric"]) for row in caches}
    records = []
    for each in engines:
        key = (each.pod, each.rank)
        spent, counted = _column(each, prefill_s.get(key)), _column(each, prefills.get(key))
        asked, found = _column(each, queries.get(key)), _column(each, hits.get(key))
        with np.errstate(divide="ignore", invalid="ignore"):
            records.append(
                EngineRecord(
                    history=each,
                    steps_per_s=_column(each, steps.get(key)),
                    prefill_s=np.where(counted > 0, spent / counted, np.nan),
                    hit_share=np.where(asked > 0, np.minimum(found / asked, 1.0), 0.0),
                    kv_cache_tokens=sizes.get(key),
                )
            )
    return tuple(records)


def last_hours(pods: int) -> int:
    """How far back so many pods are looked at scrape by scrape."""
    return min(24, LAST_HOURS * MOST_SCRAPED_PODS // max(pods, 1))


async def read_traffic(ask: Ask, series: Series, few: Series, hours: int) -> TrafficHistory:
    """The last week by hours, and these last hours scrape by scrape of the pods that `few` selects."""
    lengths = {family: await _lengths(ask, series, family) for family in (Family.PROMPT_LENGTH, Family.OUTPUT_LENGTH)}
    queries = await _counted(ask, series, Counter.PREFIX_QUERIES)
    hits = await _counted(ask, series, Counter.PREFIX_HITS)
    times = sorted({*lengths[Family.PROMPT_LENGTH], *lengths[Family.OUTPUT_LENGTH]})
    by_hour = tuple(
        TrafficHour(
            at_s=at_s,
            prompt_tokens=lengths[Family.PROMPT_LENGTH].get(at_s),
            output_tokens=lengths[Family.OUTPUT_LENGTH].get(at_s),
            prefix_queries=queries.get(at_s),
            prefix_hits=hits.get(at_s),
        )
        for at_s in times
    )
    # Raw samples: extrapolation from the last scrape to a window's end, and scrapes that are missed, look like bursts.
    scraped = await ask(f"{few(f'{Family.TTFT}_count')}[{hours}h]")
    return TrafficHistory(by_hour, _first_tokens(scraped))


def _rate(selector: str) -> str:
    return f"rate({selector}[{WINDOW_S}s])"


def _over(function: str, selector: str) -> str:
    return f"{function}_over_time({selector}[{WINDOW_S}s])"


async def _of_engines(ask: Ask, each: str) -> dict[tuple[str, str], dict[float, float]]:
    """By pod and rank, by time."""
    rows = await ask(f"sum by (pod, engine) (max by (pod, engine, model_name) ({each}))[{DAY}:{WINDOW_S}s]")
    return {_key(row["metric"]): _by_time(row["values"]) for row in rows}


def _key(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("pod", ""), labels.get("engine", "")


async def _counted_by_engine(ask: Ask, series: Series, counter: Counter) -> dict[tuple[str, str], dict[float, float]]:
    return await _of_engines(ask, _rate(series(counter))) or await _of_engines(
        ask, _rate(series(f"{OLD_PREFIX}{counter}"))
    )


def _column(engine: EngineHistory, by_time: Mapping[float, float] | None) -> Floats:
    """A row for each window of the history."""
    known = by_time or {}
    return np.array([known.get(float(at_s), math.nan) for at_s in engine.at_s], dtype=np.float64)


def _engine(
    key: tuple[str, str], columns: Mapping[str, Mapping[tuple[str, str], Mapping[float, float]]]
) -> EngineHistory:
    times = sorted(columns["decoding"][key])
    read = {
        name: np.array([of.get(key, {}).get(at_s, math.nan) for at_s in times], dtype=np.float64)
        for name, of in columns.items()
    }
    return EngineHistory(pod=key[0], rank=key[1], window_s=float(WINDOW_S), at_s=np.array(times), **read)


async def _lengths(ask: Ask, series: Series, family: Family) -> dict[float, Histogram]:
    """The increase of a histogram in each hour; hours without any are left out."""
    bucket = f"increase({series(f'{family}_bucket')}[1h])"
    rows = await ask(f"sum by (le) (max by (le, pod, engine, model_name) ({bucket}))[{WEEK}:1h]")
    sums = await _by_hour(ask, series(f"{family}_sum"))
    by_bound = {float(r["metric"]["le"]): _by_time(r["values"]) for r in rows if r["metric"].get("le")}
    bounds = tuple(sorted(by_bound))
    found = {}
    for at_s in sorted({at_s for values in by_bound.values() for at_s in values}):
        # Buckets change with max_model_len: a bound that is not there yet counts what the next lower one does.
        cumulative = np.maximum.accumulate([by_bound[bound].get(at_s, 0.0) for bound in bounds])
        if cumulative[-1] > 0 and at_s in sums:
            found[at_s] = Histogram(bounds, tuple(cumulative.tolist()), sums[at_s])
    return found


async def _counted(ask: Ask, series: Series, counter: Counter) -> dict[float, float]:
    return await _by_hour(ask, series(counter)) or await _by_hour(ask, series(f"{OLD_PREFIX}{counter}"))


async def _by_hour(ask: Ask, selector: str) -> dict[float, float]:
    rows = await ask(f"sum(max by (pod, engine, model_name) (increase({selector}[1h])))[{WEEK}:1h]")
    return _by_time(rows[0]["values"]) if rows else {}


def _by_time(values: Iterable[Sequence[Any]]) -> dict[float, float]:
    known = ((float(at_s), float(value)) for at_s, value in values)
    return {at_s: value for at_s, value in known if is_possible(value)}


def _first_tokens(rows: Rows) -> tuple[FirstTokens, ...]:
    """Of each pod the engines that one job scrapes: all of them at the same times. The job that saw most counts."""
    by_pod: dict[str, dict[tuple[str, str], dict[float, float]]] = {}
    for row in rows:
        labels = row["metric"]
        job = by_pod.setdefault(labels.get("pod", ""), {}).setdefault(
            (labels.get("job", ""), labels.get("instance", "")), {}
        )
        for at_s, value in _by_time(row["values"]).items():
            job[at_s] = job.get(at_s, 0.0) + value
    seen = [max(jobs.values(), key=len) for _, jobs in sorted(by_pod.items())]
    return tuple(
        FirstTokens(np.array(sorted(job)), np.array([job[at_s] for at_s in sorted(job)])) for job in seen if job
    )
