"""`python -m benchmarks.passive.learned`: what is predicted for learned workloads against what is for the true ones.

Replicas of the simulated fleet live through a day; their traffic is learned from vLLM's histograms and counters as they
were scraped, with scrapes that are missed. The twin with the machine's own law then predicts P99 TTFT and P99 TPOT for
the learned workload and for the one that was drawn from, so that nothing differs but the workload. The last line is one
JSON object; errors are relative: `…_p99_error` is their median over the `learned` replicas, below `…_p90` are nine
tenths of them, and `…_luck` is the median of what the true workload differs from itself with other draws.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from benchmarks.passive.day import DAY_S, WINDOW_S, Served, Windows, history_of, log_room
from benchmarks.passive.fleet import SETTING, TRAFFIC, Probes, Replica, fleet, live
from kneekeeper.api.model import Setting
from kneekeeper.api.workload import Workload
from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.observed_workload import learn
from kneekeeper.domain.plan.requests import burstiness_of, lengths_of
from kneekeeper.domain.samples import Floats, Ints
from kneekeeper.domain.traffic_history import FirstTokens, TrafficHistory, TrafficHour
from kneekeeper.domain.twin import Law, simulate
from kneekeeper.domain.twin.simulate import Load
from kneekeeper.domain.twin.traffic import TwinTraffic
from kneekeeper.engine.buckets import buckets_of
from kneekeeper.observe.production_history import last_hours

REPLICAS = 24
SCORING_SEED = 5
OF_KNEE = 0.75
"""Of the rate at the knee: what the predictions are made for."""

HOUR_S = 3600.0
BURSTS_S = last_hours(pods=1) * HOUR_S

_MAX_MODEL_LEN = 8192
_SEEDS, _REQUESTS, _WARM_UP = 7, 8000, 500


@dataclass(frozen=True)
class Tails:
    """P99s in seconds."""

    ttft_s: float
    tpot_s: float

    def error(self, true: Tails) -> tuple[float, float]:
        """Relative, of TTFT and TPOT."""
        return abs(self.ttft_s / true.ttft_s - 1), abs(self.tpot_s / true.tpot_s - 1)


def predicted(traffic: TwinTraffic, setting: Setting, law: Law, rate: float, first_seed: int = 0) -> Tails:
    """On the twin, the median of some seeds: a P99 near saturation is a matter of luck."""
    found = []
    for seed in range(first_seed, first_seed + _SEEDS):
        drawn = traffic.draw(_REQUESTS, seed)
        load = Load(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens).at_rate(rate)
        result = simulate(load, traffic.limits(setting), law)
        found.append((np.quantile(result.ttft_s[_WARM_UP:], 0.99), np.nanquantile(result.tpot_s[_WARM_UP:], 0.99)))
    ttft_s, tpot_s = np.median(np.array(found), axis=0)
    return Tails(float(ttft_s), float(tpot_s))


def traffic_of(workload: Workload, kv_cache_tokens: int) -> TwinTraffic:
    """A learned workload as the twin sees it."""
    assert workload.prompt_tokens is not None  # what is learned has both
    assert workload.output_tokens is not None
    return TwinTraffic(
        lengths_of(workload.prompt_tokens, None),
        lengths_of(workload.output_tokens, None),
        burstiness_of(workload.arrivals),
        kv_cache_tokens=kv_cache_tokens,
    )


def learned(replica: Replica, served: Served) -> Workload | None:
    """From the metrics of the day; None where they tell too little."""
    scraped = replica.scraping.times(DAY_S, np.random.default_rng([replica.seed, 2]))
    prompts, outputs = (_histograms(served, tokens, scraped) for tokens in (served.prompt_tokens, served.output_tokens))
    hours = tuple(
        TrafficHour((index + 1) * HOUR_S, prompt, output)
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    )
    late = scraped[scraped >= DAY_S - BURSTS_S]
    counted = np.searchsorted(np.sort(served.first_s), late, side="right").astype(np.float64)
    engines = [history_of(served, replica.name, scraped, DAY_S, WINDOW_S)]
    found = learn(TrafficHistory(hours, (FirstTokens(late, counted),)), engines, datetime.fromtimestamp(DAY_S, UTC))
    return None if found is None else found.workload


def _histograms(served: Served, tokens: Ints, scraped: Floats) -> list[Histogram | None]:
    """What each hour adds, as `increase` has it of the scrapes."""
    windows = Windows.of(scraped, DAY_S, HOUR_S)
    order = np.argsort(served.first_s)
    came, sizes = served.first_s[order], tokens[order]
    seen = np.searchsorted(came, scraped, side="right")

    def added(each: Floats) -> Floats:
        return windows.rate(np.concatenate([[0.0], np.cumsum(each)])[seen]) * HOUR_S

    bounds = (*map(float, buckets_of("request_tokens", _MAX_MODEL_LEN, {})), float("inf"))
    below = np.array([added((sizes <= bound).astype(np.float64)) for bound in bounds])
    total = added(sizes.astype(np.float64))
    return [
        Histogram(bounds, tuple(below[:, hour].tolist()), float(total[hour])) if below[-1, hour] > 0 else None
        for hour in range(total.size)
    ]


@dataclass(frozen=True)
class Judged:
    """One replica. Each pair is of TTFT and TPOT: relative errors, and what other draws of the true workload differ."""

    errors: tuple[float, float]
    luck: tuple[float, float]
    true: Tails
    shapes: tuple[float, float]
    """Of the arrivals: true and learned."""

    def __str__(self) -> str:
        return (
            f"P99 TTFT {self.true.ttft_s:.3g} s off by {self.errors[0]:.1%} (luck {self.luck[0]:.1%}), "
            f"P99 TPOT by {self.errors[1]:.1%} ({self.luck[1]:.1%}); "
            f"arrivals of shape {self.shapes[0]:g} learned as {self.shapes[1]:g}"
        )


def judge(replica: Replica, served: Served, workload: Workload, rate: float) -> Judged:
    """At `rate` requests/s, with the machine's own law."""
    burstiness = replica.daily_shape[-1]
    true = replace(TRAFFIC[replica.traffic], burstiness=burstiness, kv_cache_tokens=served.kv_tokens)
    law = replica.machine.law()
    told = predicted(traffic_of(workload, served.kv_tokens), SETTING, law, rate)
    reference, again = (predicted(true, SETTING, law, rate, first_seed) for first_seed in (0, _SEEDS))
    shapes = burstiness, burstiness_of(workload.arrivals) or math.inf
    return Judged(told.error(reference), again.error(reference), reference, shapes)


def summary(judged: Sequence[Judged]) -> dict[str, float]:
    """Raises ValueError where nothing was learned."""
    if not judged:
        raise ValueError("no workload was learned; nothing can be said of errors")
    errors, luck = np.array([each.errors for each in judged]), np.array([each.luck for each in judged])
    of_each = {
        f"{name}_p99_{key}": round(float(value), 4)
        for column, name in enumerate(("ttft", "tpot"))
        for key, value in (
            ("error", np.median(errors[:, column])),
            ("error_p90", np.quantile(errors[:, column], 0.9)),
            ("luck", np.median(luck[:, column])),
        )
    }
    return of_each | {"within_10_percent": round(float(np.mean(errors.max(axis=1) <= 0.10)), 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Predictions for learned workloads against those for the true ones.")
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--seed", type=int, default=SCORING_SEED)
    arguments = parser.parse_args()
    room = log_room()
    probes, silent = Probes(room), 0
    judged: list[Judged] = []
    for replica in fleet(arguments.replicas, arguments.seed):
        probed = probes.of(replica.machine.engine, replica.traffic)
        if probed is None:
            continue
        served = live(replica, probed, room)
        workload = learned(replica, served)
        if workload is None:
            silent += 1
            print(f"{replica.name}: too few requests", flush=True)
            continue
        rate = OF_KNEE * probed.rate_at(probed.knee) / replica.machine.slowness
        judged.append(judge(replica, served, workload, rate))
        print(f"{replica.name}: {judged[-1]}", flush=True)
    print(json.dumps({"learned": len(judged), "silent": silent} | summary(judged) | {"seed": arguments.seed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
