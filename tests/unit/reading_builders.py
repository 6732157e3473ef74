"""Readings of an engine that are written by hand."""

from __future__ import annotations

import math

from kneekeeper.domain.diagnose import Counter, EngineReading, Family, Gauge, Histogram

BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, math.inf)


def histogram(*values: float) -> Histogram:
    counts = tuple(float(sum(value <= bound for value in values)) for bound in BOUNDS)
    return Histogram(BOUNDS, counts, math.fsum(values))


def readings(
    running: tuple[float, ...] = (40, 42, 38, 44, 37, 41, 43, 39, 36, 45, 40, 42),
    waiting: tuple[float, ...] = (0,) * 12,
    finished: int = 1000,
    ttft_s: float = 0.08,
    queue_s: float = 0.005,
    preemptions: float = 0,
    kv_usage: float = 0.3,
) -> list[EngineReading]:
    """Twelve scrapes 20 s apart; counters grow evenly."""
    found = []
    for index, (now, queued) in enumerate(zip(running, waiting, strict=True)):
        done = finished * index // 11
        found.append(
            EngineReading(
                at_s=20.0 * index,
                gauges={Gauge.RUNNING: now, Gauge.WAITING: queued, Gauge.KV_USAGE: kv_usage},
                counters={
                    Counter.PROMPT_TOKENS: 200.0 * done,
                    Counter.GENERATION_TOKENS: 100.0 * done,
                    Counter.PREEMPTIONS: preemptions * index / 11,
                },
                histograms={
                    Family.TTFT: histogram(*[ttft_s] * done),
                    Family.TPOT: histogram(*[0.044] * done),
                    Family.ITL: histogram(*[0.044] * done),
                    Family.E2E: histogram(*[4.4] * done),
                    Family.QUEUE: histogram(*[queue_s] * done),
                    Family.PREFILL: histogram(*[0.06] * done),
                    Family.OUTPUT_LENGTH: Histogram((100.0, math.inf), (float(done), float(done)), 100.0 * done),
                },
            )
        )
    return found
