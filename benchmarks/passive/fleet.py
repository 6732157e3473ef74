"""Replicas with a known knee: an engine, its traffic, how far a day's peak comes, and what a run once said of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from benchmarks.passive.day import DAY_S, Daily, Machine, Scraping, Served, drawn, history_of
from benchmarks.passive.ramp import NoKneeError, Probed, probe
from benchmarks.tuner import engines
from benchmarks.tuner.engines import Engine
from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.domain.passive import EngineHistory, KneePrior
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.twin.traffic import TwinTraffic

SETTING = Setting(max_num_seqs=512, max_num_batched_tokens=2048)

ENGINES = (
    engines.BLOOM_A100.with_kv("BLOOM-176B, 8 A100, large cache", 600_000),
    engines.BLOOM_H100.with_kv("BLOOM-176B, 8 H100, large cache", 600_000),
    engines.LLAMA70_A100.with_kv("Llama 2 70B, 4 A100", 600_000),
    engines.LLAMA70_H100X8,
    engines.LLAMA8_L4.with_kv("Llama 3.1 8B, L4, large cache", 400_000),
    engines.QWEN14_L40S.with_kv("Qwen 2.5 14B, L40S, large cache", 400_000),
    engines.BLOOM_A100,  # the caches of these fill before their computing is used up
    engines.LLAMA8_L4,
)

TRAFFIC = {
    "chat": TwinTraffic(LogNormal(mean=600, sigma=0.9, maximum=4000), LogNormal(mean=220, sigma=0.7, maximum=1200)),
    "short": TwinTraffic(LogNormal(mean=200, sigma=0.6, maximum=1500), LogNormal(mean=120, sigma=0.5, maximum=600)),
    "documents": TwinTraffic(
        LogNormal(mean=1500, sigma=0.6, maximum=6000), LogNormal(mean=160, sigma=0.6, maximum=900)
    ),
}


class Reach(StrEnum):
    """What a day's highest load is, of the knee: as it was drawn. What it came to is measured."""

    LOW = "low"
    MIDDLE = "middle"
    HIGH = "high"


_REACHES = {Reach.LOW: (0.08, 0.36), Reach.MIDDLE: (0.42, 0.66), Reach.HIGH: (0.75, 1.2)}
_DRAWN = (Reach.HIGH, Reach.LOW, Reach.HIGH, Reach.MIDDLE, Reach.LOW)
_WITH_A_RUN, _RUN_OF_OTHER_TRAFFIC = 0.5, 0.25
_RUN_ERROR = 0.06


@dataclass(frozen=True)
class Replica:
    """One replica for a day."""

    name: str
    machine: Machine
    traffic: str
    reach: float
    """Of its own knee, at the daily curve's peak."""
    daily_shape: tuple[float, float, float, float]
    """Night share, busiest hour, unrest, burstiness."""
    scraping: Scraping
    run_of: str | None
    """The traffic with which a run measured this kind of engine; None where none did."""
    seed: int


def fleet(count: int, seed: int) -> tuple[Replica, ...]:
    """`count` replicas, the same for the same seed."""
    rng = np.random.default_rng(seed)
    names = list(TRAFFIC)
    replicas = []
    for index in range(count):
        engine, traffic = ENGINES[index % len(ENGINES)], names[(index // len(ENGINES)) % len(names)]
        low, high = _REACHES[_DRAWN[int(rng.integers(len(_DRAWN)))]]
        run_of = None
        if rng.random() < _WITH_A_RUN:
            run_of = str(rng.choice(names)) if rng.random() < _RUN_OF_OTHER_TRAFFIC else traffic
        replicas.append(
            Replica(
                name=f"{engine.name}, {traffic}, {index}",
                machine=Machine(engine, SETTING, slowness=float(np.exp(rng.normal(0, 0.07)))),
                traffic=traffic,
                reach=float(rng.uniform(low, high)),
                daily_shape=(
                    float(rng.uniform(0.08, 0.35)),
                    float(rng.uniform(11, 20)),
                    float(rng.uniform(0.05, 0.2)),
                    float(rng.choice([1.0, 1.0, 0.5])),
                ),
                scraping=Scraping(float(rng.uniform(0.01, 0.12)), int(rng.integers(0, 4))),
                run_of=run_of,
                seed=seed * 100_003 + index,
            )
        )
    return tuple(replicas)


class Probes:
    """What ramps say of each engine and traffic; measured once, without noise."""

    def __init__(self, room: Floats) -> None:
        self._room = room
        self._known: dict[tuple[str, str], Probed | None] = {}

    def of(self, engine: Engine, traffic: str) -> Probed | None:
        """None where the ramp finds no knee: such a pair is not in the fleet."""
        key = (engine.name, traffic)
        if key not in self._known:
            try:
                self._known[key] = probe(Machine(engine, SETTING), TRAFFIC[traffic], self._room, seed=7)
            except NoKneeError:
                self._known[key] = None
        return self._known[key]


def live(replica: Replica, probed: Probed, room: Floats, day_s: float = DAY_S) -> Served:
    """Serve the replica's day. `day_s` is what the daily curve is squeezed into."""
    night, hour, unrest, burstiness = replica.daily_shape
    # All steps of a slower machine take longer: its knee stays, its rates fall.
    peak = probed.rate_at(replica.reach * probed.knee) / replica.machine.slowness
    daily = Daily(peak, night, hour, unrest, burstiness)
    rng = np.random.default_rng([replica.seed, 1])
    arrivals = daily.arrivals(day_s, rng)
    requests = drawn(TRAFFIC[replica.traffic], arrivals, replica.seed)
    return replica.machine.serve(requests, replica.machine.noisy(replica.seed), 0, room)


def seen_by_prometheus(replica: Replica, served: Served, day_s: float, window_s: float) -> EngineHistory:
    """The windows of the day."""
    scraped = replica.scraping.times(day_s, np.random.default_rng([replica.seed, 2]))
    return history_of(served, replica.name, scraped, day_s, window_s)


def prior_of(replica: Replica, probes: Probes) -> KneePrior | None:
    """What a run of this kind of engine said, with a ramp's error."""
    probed = probes.of(replica.machine.engine, replica.run_of) if replica.run_of is not None else None
    if probed is None:
        return None
    error = np.random.default_rng([replica.seed, 3]).normal(0, _RUN_ERROR)
    return KneePrior(float(probed.compute_knee * np.exp(error)))
