"""The twin against real vLLM (CPU): fit one ramp under a ceiling, predict settings that the fit has not seen.

All engines stay up, so that their stages can be interleaved: the speed of a shared machine drifts, and stages minutes
apart do not compare. Between any two stages a control stage runs on the ceiling's engine. A stage counts when the
controls around it agree, which is decided before anything is predicted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import SERVED_MODEL_NAME, EngineSettings, LocalServer, running
from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal, Open
from kneekeeper.api.stage import Limits, Slo, StageSpec, Target
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import drift_between
from kneekeeper.domain.engine_law import fit_engine
from kneekeeper.domain.ladder import LadderDone, LadderSettings, StageOrder, next_stage
from kneekeeper.domain.samples import Floats, StageData
from kneekeeper.domain.stats import Interval, percentile_interval
from kneekeeper.domain.summary import summarise
from kneekeeper.domain.twin import Load, simulate
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic
from kneekeeper.load.stage_runner import StageRunner

CEILING = Setting(max_num_seqs=64, max_num_batched_tokens=2048)
UNSEEN = (
    Setting(max_num_seqs=16, max_num_batched_tokens=2048),
    Setting(max_num_seqs=32, max_num_batched_tokens=512),
    Setting(max_num_seqs=64, max_num_batched_tokens=256),
)
LOADS = (0.5, 0.8)
"""Of the capacity that the twin predicts for the setting."""

PROMPTS = LogNormal(mean=120, sigma=0.6, maximum=1000)
OUTPUTS = LogNormal(mean=35, sigma=0.4, maximum=120)
TRAFFIC = TwinTraffic(PROMPTS, OUTPUTS)

ROUNDS = 3
REQUESTS = 800
"""Of a stage: three rounds are more than the 2,000 requests that a P99 is to rest on."""

AGREEMENT = 0.05
MOST_DISCARDED = 0.5
_LADDER = LadderSettings(
    slo=Slo(ttft_s=2.0, tpot_s=0.2),
    prompt_tokens=PROMPTS,
    output_tokens=OUTPUTS,
    burstiness=1.0,
    max_concurrency=CEILING.max_num_seqs,
    ceiling=CEILING,
    max_stage_duration_s=60.0,
    control_tolerance=0.15,
    kv_cache_tokens=None,
    prefill_tokens=(60, 120, 240, 480),
)
_RESAMPLES = 500
_BLOCK = 40
"""Requests that are redrawn together: those of one time are alike."""
_RUNS = 20
_SEED = 7


@dataclass(frozen=True)
class Pair:
    """A setting at a rate that the fit has not seen."""

    setting: Setting
    rate: float
    load: float


@dataclass(frozen=True)
class Row:
    """One pair: what the twin said and what real vLLM did, P99s in seconds with their 90% intervals."""

    pair: Pair
    requests: int
    kept_rounds: int
    ttft_s: Interval
    tpot_s: Interval
    predicted_ttft_s: float
    predicted_tpot_s: float
    median_ttft_error: float
    median_tpot_error: float
    """Of the medians, as shares."""

    @property
    def ttft_error(self) -> float:
        return self.predicted_ttft_s / self.ttft_s.estimate - 1

    @property
    def tpot_error(self) -> float:
        return self.predicted_tpot_s / self.tpot_s.estimate - 1


@dataclass(frozen=True)
class Study:
    """All pairs of which at least one round was kept."""

    fit: LawFit
    rows: tuple[Row, ...]
    discarded: tuple[str, ...]
    stages: int

    @property
    def conclusive(self) -> bool:
        """Enough stages were kept, and each pair has one."""
        kept_enough = len(self.discarded) <= MOST_DISCARDED * self.stages
        return kept_enough and len(self.rows) == len(UNSEEN) * len(LOADS)


@dataclass
class _Measured:
    """What the rounds brought for one pair."""

    kept: list[StageData] = field(default_factory=list)


class NotMeasured(Exception):
    """The ladder did not come to its end; the message says why."""


def study(engine: RealVllm) -> Study:
    """Run the protocol. Takes about 25 minutes and both cores of a quiet machine. Raises NotMeasured."""
    with contextlib.ExitStack() as stack:
        servers = {
            setting: stack.enter_context(running(engine, EngineSettings(**setting.model_dump())))
            for setting in (CEILING, *UNSEEN)
        }
        fit = _fit(servers[CEILING])
        pairs = list(_pairs(fit))
        measured = {pair: _Measured() for pair in pairs}
        discarded: list[str] = []
        seeds = itertools.count(_SEED * 1000)
        control = _control(servers[CEILING], next(seeds))
        for number in range(1, ROUNDS + 1):
            for pair in pairs:
                _, data = _run(servers[pair.setting], pair.setting, _order(pair), next(seeds))
                after = _control(servers[CEILING], next(seeds))
                drift = drift_between(control, after).share
                control = after
                if drift <= AGREEMENT:
                    measured[pair].kept.append(data)
                else:
                    discarded.append(f"round {number}, {pair.setting} at {pair.load:.0%}: controls differ {drift:.1%}")
    rows = tuple(_row(pair, found.kept, fit) for pair, found in measured.items() if found.kept)
    return Study(fit, rows, tuple(discarded), ROUNDS * len(pairs))


def _fit(server: LocalServer) -> LawFit:
    stages: list[StageSummary] = []
    while not isinstance(order := next_stage(_LADDER, stages), LadderDone):
        summary, _ = _run(server, CEILING, order, len(stages))
        stages.append(summary)
    fit = fit_engine(stages, TRAFFIC)
    if fit is None:
        raise NotMeasured(f"The ladder ended with {order.reason}: {order.message}")
    return fit


def _pairs(fit: LawFit) -> Iterator[Pair]:
    surface = Surface.drawn(TRAFFIC, [Slo()], [fit.law], 2000)
    for setting in UNSEEN:
        capacity = surface.capacity(TRAFFIC.limits(setting))
        yield from (Pair(setting, load * capacity, load) for load in LOADS)


def _order(pair: Pair) -> StageOrder:
    limits = Limits(
        min_requests=REQUESTS,
        max_requests=round(1.15 * REQUESTS),
        max_duration_s=3 * REQUESTS / pair.rate,
    )
    return StageOrder("pair", StageKind.OPEN, Open(rate=pair.rate), PROMPTS, OUTPUTS, limits)


def _control(server: LocalServer, seed: int) -> StageSummary:
    order = next_stage(_LADDER, _WARM)
    assert isinstance(order, StageOrder)  # the first stage of a warm engine is a control
    return _run(server, CEILING, order, seed)[0]


def _run(server: LocalServer, setting: Setting, order: StageOrder, seed: int) -> tuple[StageSummary, StageData]:
    url = urlsplit(server.url)
    spec = StageSpec(
        id="stage",
        target=Target(host=url.hostname or "", port=url.port or 0, model=SERVED_MODEL_NAME),
        prompt_tokens=order.prompt_tokens,
        output_tokens=order.output_tokens,
        arrivals=order.arrivals,
        limits=order.limits,
        seed=seed,
    )
    runner = StageRunner(spec)
    asyncio.run(runner.run())
    samples = runner.samples()
    summary = summarise(spec, runner.status(), samples, name=order.name, kind=order.kind, setting=setting)
    return summary, StageData.from_wire(samples).after_warmup()


def _row(pair: Pair, kept: Sequence[StageData], fit: LawFit) -> Row:
    ttft_s = [data.ttft_s[data.ok] for data in kept]
    tpot_s = [data.tpot_s[data.ok & ~np.isnan(data.tpot_s)] for data in kept]
    limits = TRAFFIC.limits(pair.setting)
    predicted = []
    for run in range(_RUNS):
        drawn = TRAFFIC.draw(2000, _SEED + run)
        load = Load(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens).at_rate(pair.rate)
        result = simulate(load, limits, fit.law)
        predicted.append([np.nanquantile(v[200:], q) for v in (result.ttft_s, result.tpot_s) for q in (0.99, 0.5)])
    p99_ttft_s, p50_ttft_s, p99_tpot_s, p50_tpot_s = np.median(predicted, axis=0).tolist()
    return Row(
        pair=pair,
        requests=sum(values.size for values in ttft_s),
        kept_rounds=len(kept),
        ttft_s=_p99(ttft_s),
        tpot_s=_p99(tpot_s),
        predicted_ttft_s=p99_ttft_s,
        predicted_tpot_s=p99_tpot_s,
        median_ttft_error=p50_ttft_s / float(np.median(np.concatenate(ttft_s))) - 1,
        median_tpot_error=p50_tpot_s / float(np.median(np.concatenate(tpot_s))) - 1,
    )


def _p99(rounds: Sequence[Floats]) -> Interval:
    """P99 of all rounds, with the interval from redrawing blocks of neighbouring requests."""
    blocks = [part for values in rounds for part in np.array_split(values, max(1, values.size // _BLOCK))]
    rng = np.random.default_rng(_SEED)
    draws = [
        np.quantile(np.concatenate([blocks[k] for k in rng.integers(0, len(blocks), len(blocks))]), 0.99)
        for _ in range(_RESAMPLES)
    ]
    return percentile_interval(float(np.quantile(np.concatenate(rounds), 0.99)), draws, 0.90)


_WARM: Sequence[StageSummary] = [
    StageSummary(
        name=f"warm-up-1-{number}",
        kind=StageKind.WARM_UP,
        setting=CEILING,
        prompt_tokens_mean=120,
        output_tokens_mean=35,
        requests=16,
        duration=1.0,
        requests_per_second=1.0,
        output_tokens_per_second=35.0,
        mean_concurrency=8.0,
        p50_ttft=0.05,
        p50_tpot=0.01,
    )
    for number in (1, 2)
]
"""Two agreeing warm-up rounds: the ladder then asks for a control stage."""
