"""A scenario: a load and a fault in words, the truth about it, and how it becomes an observation."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from benchmarks.diagnosis.engines import ENGINES, Engine, measure
from benchmarks.diagnosis.replica import HEALTHY, Faults, Replica, SimulatedTime
from benchmarks.diagnosis.traffic import Traffic, start
from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import (
    Boundary,
    DiagnosisObservation,
    EngineReading,
    EngineSettings,
    GpuWindow,
    MeasuredEngine,
    Objective,
    OutsideView,
    Reason,
    Window,
    window_of,
)
from kneekeeper.domain.diagnose.facts import Curve
from kneekeeper.observe.engine_metrics import parse_samples
from kneekeeper.observe.engine_readings import reading_of

WARM_UP_S = 60.0
WINDOW_S = 240.0
SCRAPE_EVERY_S = 15.0
SHORT_MODEL_LEN = 2048
"""Where the KV cache is small, so that it holds one request at least."""


class Kind(StrEnum):
    ONE_CAUSE = "one cause"
    TWO_CAUSES = "two causes"
    HEALTHY = "healthy"
    NEAR = "healthy within 10% of a threshold"
    BAD_METRICS = "missing or renamed metrics"
    BOUNDARY = "boundary"


@dataclass(frozen=True)
class Load:
    """Relative to the engine: `of_knee` is a share of the rate, or of the users, at its knee under this mix."""

    of_knee: float
    closed: bool = False
    prompt_factor: float = 1.0
    output_factor: float = 1.0
    sigma: float = 0.5
    burst_size: float = 1.0
    hit_share: float = 0.0
    long_share: float = 0.0
    long_tokens: int = 0
    output_tokens: float | None = None
    """Instead of the engine's mean times the factor."""
    users: int = 0
    """Instead of a share of the knee."""
    rate: float = 0.0
    """Requests/s instead of a share of the knee."""

    def traffic(self, engine: Engine) -> Traffic:
        prompt = engine.prompt_tokens * self.prompt_factor
        output = self.output_tokens or engine.output_tokens * self.output_factor
        curve = self.curve(engine)
        rate = self.rate or self.of_knee * curve.tokens_per_s(curve.knee) / output
        return Traffic(
            prompt_tokens=prompt,
            output_tokens=output,
            rate=0.0 if self.closed else rate,
            users=(self.users or round(self.of_knee * curve.knee)) if self.closed else 0,
            prompt_sigma=self.sigma,
            output_sigma=0.0 if self.output_tokens else self.sigma,
            burst_size=self.burst_size,
            hit_share=self.hit_share,
            long_share=self.long_share,
            long_tokens=self.long_tokens,
        )

    def curve(self, engine: Engine) -> Curve:
        """As the engine's law has it under this mix."""
        prompt = engine.prompt_tokens * self.prompt_factor
        prompt = prompt * (1 - self.long_share) + self.long_tokens * self.long_share
        output = self.output_tokens or engine.output_tokens * self.output_factor
        return engine.curve(measure(engine), prompt, output, self.hit_share)


@dataclass(frozen=True)
class Scenario:
    """What is done to the engine, and what is true of it then."""

    name: str
    kind: Kind
    load: Load
    expected: frozenset[Reason] = frozenset()
    """Findings that must come."""
    also: frozenset[Reason] = frozenset()
    """Findings that are true as well, as consequences, but need not be told."""
    engine: int = 0
    seqs_of_knee: float = 2.0
    max_num_seqs: int = 0
    """Instead of a share of the knee."""
    budget: int = 2048
    chunked: bool = True
    kv_tokens: int = 0
    """0: ample."""
    faults: Faults = HEALTHY
    before: Load | None = None
    slo: Slo | None = None
    slo_over_p99: float = 0.0
    """The targets are what clients see as P99 times this, and bounds of the histograms; above 1 the SLO holds."""
    buckets_s: tuple[float, ...] = ()
    """Of TTFT, instead of vLLM's."""
    run_arrivals: float | None = 1.0
    run_hit_share: float = 0.0
    objective: Objective = Objective.INTERACTIVE
    gpu: bool = True
    client: bool = False
    """Whether clients' own TTFT is known."""
    router_share: float = 0.0
    """Of a second replica's traffic that a router sends here, on top of this one's."""
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    boundary: Boundary | None = None
    unjudged: frozenset[Reason] = frozenset()
    summed: bool = False
    """Series of two replicas in one exposition."""
    with_run: bool = True

    def observe(self, seed: int) -> DiagnosisObservation:
        """Run the engine, scrape it, and gather what the product would know."""
        scenario = self
        if self.slo_over_p99:
            seen = _Run(self, seed)
            seen.go()
            scenario = replace(self, slo_over_p99=0.0, slo=seen.slo(self.slo_over_p99))
        run = _Run(scenario, seed)
        run.go()
        return run.observation()


@dataclass
class _Run:
    scenario: Scenario
    seed: int
    readings: list[EngineReading] = field(default_factory=list)
    earlier: list[EngineReading] = field(default_factory=list)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.engine = ENGINES[scenario.engine]
        self.time = SimulatedTime()
        knee = scenario.load.curve(self.engine).knee
        self.seqs = scenario.max_num_seqs or max(2, round(scenario.seqs_of_knee * knee))
        self.replica = self._replica(self.seed)
        self.peer = self._replica(self.seed + 1) if scenario.router_share or scenario.summed else None
        self.draw = random.Random(f"{scenario.name} {self.seed}")
        self.peer_readings: list[EngineReading] = []

    def _replica(self, seed: int) -> Replica:
        scenario = self.scenario
        words = ["--max-num-seqs", str(self.seqs), "--max-num-batched-tokens", str(max(scenario.budget, self.seqs))]
        if not scenario.chunked:
            words += ["--no-enable-chunked-prefill", "--max-model-len", str(scenario.budget)]
        if scenario.kv_tokens:
            words += [
                "--num-gpu-blocks-override",
                str(scenario.kv_tokens // 16),
                "--max-model-len",
                str(SHORT_MODEL_LEN),
            ]
        buckets = self._buckets()
        if buckets:
            words += ["--custom-histogram-buckets", json.dumps(buckets)]
        return Replica(self.time, self.engine.hardware, tuple(words), scenario.faults, seed)

    def _buckets(self) -> dict[str, list[float]]:
        scenario, slo = self.scenario, self.scenario.slo
        if scenario.buckets_s:
            return {"time_to_first_token": list(scenario.buckets_s)}
        if slo is None:
            return {}
        found = {}
        for family, target in (("time_to_first_token", slo.ttft_s), ("inter_token_latency", slo.tpot_s)):
            if target is not None:
                found[family] = [round(target * part, 6) for part in (0.25, 0.5, 0.75, 0.9)] + [
                    target, *(round(target * part, 6) for part in (1.1, 1.5, 2, 4, 10))
                ]  # fmt: skip
        return found

    def go(self) -> None:
        if self.scenario.before is not None:
            self._serve(self.scenario.before, self.earlier)
        self._serve(self.scenario.load, self.readings)

    def _serve(self, load: Load, into: list[EngineReading]) -> None:
        """The load until the end of a window; what the load before left behind is served meanwhile."""
        traffic = load.traffic(self.engine)
        if self.scenario.kv_tokens:
            traffic = replace(traffic, longest_tokens=SHORT_MODEL_LEN)
        end_s = self.time.now_s + WARM_UP_S + WINDOW_S
        if self.peer is None or self.scenario.summed:
            start(traffic, self.replica.send, self.time, end_s, self.draw)
        if self.peer is not None and self.scenario.summed:
            start(traffic, self.peer.send, self.time, end_s, self.draw)
        elif self.peer is not None:
            start(replace(traffic, rate=2 * traffic.rate), self._route, self.time, end_s, self.draw)
        self.time.run_until(self.time.now_s + WARM_UP_S)
        self.replica.timer.busy_s = self.replica.timer.sm_active_s = 0.0
        self.replica.answered.clear()
        self.replica.probe_failures = 0
        while self.time.now_s <= end_s + 1e-6:
            into.append(self._read(self.replica, self.peer if self.scenario.summed else None))
            if self.peer is not None:
                self.peer_readings.append(self._read(self.peer, None))
            self.time.run_until(self.time.now_s + SCRAPE_EVERY_S)

    def _route(self, prompt: int, output: int, cached: int, then: Callable[[], None] | None = None) -> None:
        here = self.peer is None or self.draw.random() < self.scenario.router_share
        chosen = self.replica if here or self.peer is None else self.peer
        chosen.send(prompt, output, cached, then)

    def _read(self, replica: Replica, added: Replica | None) -> EngineReading:
        text = replica.scrape()
        samples = parse_samples(self._as_exported(text))
        if added is not None:
            other = self._as_exported(added.scrape().replace('engine="0"', 'engine="1"'))
            samples = (*samples, *parse_samples(other))
        return reading_of(self.time.now_s, samples)

    def _as_exported(self, text: str) -> str:
        for name, other in self.scenario.renamed:
            text = text.replace(name, other)
        for name in self.scenario.dropped:
            text = re.sub(
                rf"^(# (HELP|TYPE) )?{re.escape(name)}(_bucket|_sum|_count|_total|_created)?[ {{].*\n",
                "",
                text,
                flags=re.M,
            )
        return text

    def slo(self, factor: float) -> Slo:
        """P99 of the clients times the factor."""
        seen = self.replica.answered
        ttft = float(np.quantile([s.first_s - s.sent_s for s in seen], 0.99))
        tpot = float(np.quantile([(s.last_s - s.first_s) / max(1, s.output_tokens - 1) for s in seen], 0.99))
        return Slo(ttft_s=round(ttft * factor, 6), tpot_s=round(tpot * factor, 6))

    def observation(self) -> DiagnosisObservation:
        scenario, engine, timer = self.scenario, self.engine, self.replica.timer
        now = window_of(self.readings)
        busy = timer.busy_s / (now.duration_s + SCRAPE_EVERY_S)
        active = timer.sm_active_s / (now.duration_s + SCRAPE_EVERY_S)
        measured = MeasuredEngine(
            step=measure(engine),
            prompt_tokens=engine.prompt_tokens,
            output_tokens=engine.output_tokens,
            prefix_hit_share=scenario.run_hit_share,
            arrival_dispersion=scenario.run_arrivals,
        )
        return DiagnosisObservation(
            now=now,
            settings=EngineSettings(self.seqs, max(scenario.budget, self.seqs), scenario.chunked),
            before=window_of(self.earlier) if self.earlier else None,
            measured=measured if scenario.with_run else None,
            slo=scenario.slo,
            objective=scenario.objective,
            gpu=GpuWindow(min(1.0, busy), min(1.0, active)) if scenario.gpu else None,
            outside=self._outside(),
        )

    def _outside(self) -> OutsideView:
        seen = self.replica.answered
        client_s = float(np.mean([s.first_s - s.sent_s for s in seen])) if self.scenario.client and seen else None
        peers: tuple[float, ...] = ()
        if self.scenario.router_share and self.peer_readings:
            peers = (_concurrency(window_of(self.peer_readings)),)
        return OutsideView(client_s, self.replica.probe_failures, peers)


def _concurrency(window: Window) -> float:
    return sum(series.mean for gauge, series in window.gauges.items() if gauge.value.startswith("num_requests"))
