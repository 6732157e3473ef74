"""One day of one replica: requests as they come over a day, served by an engine, and its metrics as they are scraped.

The engine is the twin's scheduler with a law of another shape than the fit's (benchmarks/tuner/engines.py), a noise
and a drift. From the log of its steps follow the gauges and counters that vLLM exposes, at every scrape that was not
missed; from those the windows, as Prometheus' `rate`, `avg_over_time` and `stddev_over_time` give them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.tuner.engines import BLOCK_TOKENS, Engine
from kneekeeper.api.model import Setting
from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.samples import Bools, Floats, Ints
from kneekeeper.domain.twin import kernel
from kneekeeper.domain.twin.law import Law, log_normal_noise
from kneekeeper.domain.twin.simulate import TwinLimits
from kneekeeper.domain.twin.traffic import TwinTraffic
from kneekeeper.domain.workload import Stream, draw_lengths, generator

DAY_S = 86_400.0
SCRAPE_S = 15.0
WINDOW_S = 300.0
_SHAPE_STEP_S = 60.0
_MOST_STEPS = 6_000_000

START, DURATION, DECODES, PREFILLS, PREFILL_TOKENS, KV_TOKENS, ADMITTED, PREEMPTED = 0, 1, 2, 3, 4, 6, 7, 8
"""Columns of the kernel's log that are read here."""


@dataclass(frozen=True)
class Daily:
    """The rate over a day: low at night, high from late morning to the evening, never the same from hour to hour."""

    peak_per_s: float
    night_share: float
    """Of the peak, at its lowest."""
    busiest_hour: float
    unrest: float
    """Standard deviation of the logarithm of the rate around the daily curve."""
    burstiness: float
    """Shape of the Gamma gaps."""

    def rates(self, length_s: float, rng: np.random.Generator) -> Floats:
        """One a minute, requests/s. The unrest lasts for half an hour and more."""
        minutes = np.arange(int(length_s // _SHAPE_STEP_S) + 1)
        hour = 24 * minutes * _SHAPE_STEP_S / length_s
        wave = (0.5 + 0.5 * np.cos(2 * np.pi * (hour - self.busiest_hour) / 24)) ** 1.5
        # An Ornstein-Uhlenbeck process with a memory of 40 minutes.
        keep = np.exp(-1 / 40)
        steps, unrest = rng.normal(0.0, self.unrest * np.sqrt(1 - keep**2), minutes.size), np.zeros(minutes.size)
        for at in range(1, minutes.size):
            unrest[at] = keep * unrest[at - 1] + steps[at]
        return self.peak_per_s * (self.night_share + (1 - self.night_share) * wave) * np.exp(unrest)

    def arrivals(self, length_s: float, rng: np.random.Generator) -> Floats:
        """Gamma gaps of mean 1 on the axis of expected requests."""
        expected = np.concatenate([[0.0], np.cumsum(self.rates(length_s, rng) * _SHAPE_STEP_S)])
        gaps = rng.gamma(self.burstiness, 1 / self.burstiness, int(expected[-1] * 1.2) + 1000)
        due = np.cumsum(gaps)
        due = due[due < expected[-1]]
        times = np.interp(due, expected, np.arange(expected.size) * _SHAPE_STEP_S)
        return np.asarray(times[times < length_s])


@dataclass(frozen=True, eq=False)
class Served:
    """What an engine did: its requests, and the log of its steps, one row a step."""

    arrival_s: Floats
    first_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    log: Floats
    kv_tokens: int


@dataclass(frozen=True)
class Machine:
    """The engine of one replica, and how much slower than its like its steps are."""

    engine: Engine
    setting: Setting
    slowness: float = 1.0

    def law(self) -> Law:
        """Without noise and drift."""
        law = self.engine.law
        names = ("base_s", "per_sequence_s", "per_kv_token_s", "per_prefill_token_s", "per_prefill_pair_s", "eager_s")
        return replace(law, **{name: self.slowness * getattr(law, name) for name in names})

    def noisy(self, seed: int) -> Law:
        """As it runs on a real day."""
        phase = float(np.random.default_rng(seed).uniform(0, 2 * np.pi))
        return replace(
            self.law(),
            noise=log_normal_noise(self.engine.noise, seed),
            drift=self.engine.drift,
            drift_period_s=self.engine.drift_period_s,
            drift_phase=phase,
        )

    def serve(self, requests: np.ndarray, law: Law, users: int, room: Floats) -> Served:
        """`room` holds the log. Raises ValueError when it is too small."""
        limits = TwinLimits(
            max_num_seqs=self.setting.max_num_seqs,
            max_num_batched_tokens=self.setting.max_num_batched_tokens,
            kv_blocks=self.engine.kv_tokens(self.setting) // BLOCK_TOKENS,
            block_size_tokens=BLOCK_TOKENS,
        )
        states, counts = np.zeros(1, dtype=kernel.STATE), np.zeros(kernel.COUNTS, dtype=np.int64)
        noise = np.ascontiguousarray(law.noise, dtype=np.float64)
        kernel.run(requests, states, limits.packed(users), law.packed(), law.padded(), noise, counts, room)
        steps = int(counts[kernel.STEPS])
        if steps > room.shape[0]:
            raise ValueError(f"{steps} steps, and room for {room.shape[0]}: simulate less time")
        return Served(
            requests["arrival_s"].copy(),
            requests["first_s"].copy(),
            requests["prompt_tokens"].copy(),
            requests["output_tokens"].copy(),
            room[:steps],
            self.engine.kv_tokens(self.setting),
        )


def log_room(steps: int = _MOST_STEPS) -> Floats:
    """Space for the log of one replica's day, to be used again."""
    return np.zeros((steps, kernel.LOG_COLUMNS))


def drawn(traffic: TwinTraffic, arrival_s: Floats, seed: int) -> np.ndarray:
    """Requests with the lengths of `traffic`."""
    requests = np.zeros(arrival_s.size, dtype=kernel.REQUEST)
    requests["arrival_s"] = arrival_s
    requests["prompt_tokens"] = draw_lengths(
        traffic.prompt_tokens, arrival_s.size, generator(seed, Stream.PROMPT_LENGTHS)
    )
    requests["output_tokens"] = draw_lengths(
        traffic.output_tokens, arrival_s.size, generator(seed, Stream.OUTPUT_LENGTHS)
    )
    return requests


@dataclass(frozen=True)
class Scraping:
    """How the metrics are collected."""

    missed_share: float
    """Of single scrapes."""
    gaps: int
    """Times at which nothing is scraped for a quarter of an hour."""

    def times(self, length_s: float, rng: np.random.Generator) -> Floats:
        at = np.arange(rng.uniform(0, SCRAPE_S), length_s, SCRAPE_S)
        kept = rng.random(at.size) >= self.missed_share
        for begins in rng.uniform(0, length_s, self.gaps):
            kept &= ~((at >= begins) & (at < begins + 900))
        return np.asarray(at[kept])


@dataclass(frozen=True, eq=False)
class Windows:
    """The scrapes that fall into each window, as Prometheus' functions over time use them."""

    scraped_s: Floats
    ends_s: Floats
    low: Ints
    high: Ints
    known: Bools
    """Windows with two scrapes at least."""

    @classmethod
    def of(cls, scraped_s: Floats, length_s: float, window_s: float) -> Windows:
        ends = np.arange(window_s, length_s + 1e-9, window_s)
        low, high = np.searchsorted(scraped_s, ends - window_s), np.searchsorted(scraped_s, ends)
        known = high - low >= 2
        return cls(scraped_s, ends, np.where(known, low, 0), np.where(known, high, 2), known)

    def rate(self, counter: Floats) -> Floats:
        """Of a counter as it was scraped."""
        span_s = self.scraped_s[self.high - 1] - self.scraped_s[self.low]
        return np.where(self.known, (counter[self.high - 1] - counter[self.low]) / span_s, np.nan)

    def mean(self, gauge: Floats) -> Floats:
        """Of a gauge as it was scraped."""
        total = np.concatenate([[0.0], np.cumsum(gauge)])
        return np.where(self.known, (total[self.high] - total[self.low]) / (self.high - self.low), np.nan)


def record_of(served: Served, pod: str, scraped_s: Floats, length_s: float, window_s: float) -> EngineRecord:
    """The same with what a fit of the engine's law needs beside it."""
    log, windows = served.log, Windows.of(scraped_s, length_s, window_s)
    last = np.searchsorted(log[:, START] + log[:, DURATION], scraped_s, side="right")
    # Each prompt that is computed in a step spends the step in prefill.
    in_prefill_s = np.concatenate([[0.0], np.cumsum(log[:, PREFILLS] * log[:, DURATION])])[last]
    first = np.searchsorted(np.sort(served.first_s), scraped_s, side="right").astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        prefill_s = windows.rate(in_prefill_s) / windows.rate(first)
    return EngineRecord(
        history=history_of(served, pod, scraped_s, length_s, window_s),
        steps_per_s=windows.rate(last.astype(np.float64)),
        prefill_s=np.where(np.isfinite(prefill_s), prefill_s, np.nan),
        hit_share=np.zeros(windows.ends_s.size),
        kv_cache_tokens=served.kv_tokens,
    )


def history_of(served: Served, pod: str, scraped_s: Floats, length_s: float, window_s: float) -> EngineHistory:
    """The windows that Prometheus would give of these scrapes."""
    windows = Windows.of(scraped_s, length_s, window_s)
    rate, mean = windows.rate, windows.mean
    log = served.log
    start_s, duration_s, decodes = log[:, START], log[:, DURATION], log[:, DECODES]
    end_s = start_s + duration_s
    since_last_s = np.diff(end_s, prepend=start_s[:1])
    last = np.searchsorted(end_s, scraped_s, side="right") - 1

    def counted(each: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(each)])
        return np.asarray(total[last + 1])

    # A step that ended is what the gauges tell of until the next one has ended; an engine without work tells 0.
    following = np.append(start_s[1:], np.inf)[last]
    works = (last >= 0) & (following <= scraped_s + duration_s.mean())
    running = np.where(works, (decodes + log[:, PREFILLS])[last], 0.0)
    kv = np.where(works, log[:, KV_TOKENS][last] + BLOCK_TOKENS / 2 * running, 0.0) / served.kv_tokens
    first_s = np.sort(served.first_s)
    first = np.searchsorted(first_s, scraped_s, side="right").astype(np.float64)
    prompted = np.concatenate([[0.0], np.cumsum(served.prompt_tokens[np.argsort(served.first_s)])])[first.astype(int)]
    generated = counted(decodes) + first
    came = np.searchsorted(served.arrival_s, scraped_s, side="right")
    waiting = np.maximum(0.0, came - counted(log[:, ADMITTED] - log[:, PREEMPTED]))
    average = mean(running)
    return EngineHistory(
        pod=pod,
        rank="0",
        window_s=window_s,
        at_s=windows.ends_s,
        decoding=rate(counted(decodes * since_last_s)),
        gaps_per_s=rate(counted(decodes)),
        running=average,
        running_sd=np.sqrt(np.maximum(mean(running**2) - average**2, 0.0)),
        waiting=mean(waiting),
        requests_per_s=rate(first),
        generated_per_s=rate(generated),
        prompted_per_s=rate(prompted),
        kv_usage=mean(kv),
        preemptions_per_s=rate(counted(log[:, PREEMPTED])),
    )
