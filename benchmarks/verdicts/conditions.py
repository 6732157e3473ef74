"""Engines, targets and traffic that are tried, and what all of them together say of the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.verdicts.engine import HELD_OUT, LARGE, SMALL, TAILED, Engine
from benchmarks.verdicts.stage import Failures, Outcome, run_stage
from benchmarks.verdicts.truth import (
    BURSTY,
    POISSON,
    TRUTH_REQUESTS,
    Targets,
    Traffic,
    long_run,
    miss_share,
    saturation,
    targets_met,
)
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import SAFETY
from kneekeeper.domain.stats import clopper_pearson

UTILISATIONS = (0.70, 0.85, 0.95)
EASY_SHARE = 0.65
TRUTH_SEED, STAGE_SEED = 5, 1_000_000
OFFERED_TRUTH_REQUESTS = 100_000
MAX_FALSE_PASS, MIN_POWER = 0.05, 0.80
EASY_STAGES_SHARE = 0.5
"""Of the stages at the edge: power is far from its bound in most conditions."""

WORST = 3
MORE_FOR_WORST = 2
"""So many conditions, by either measure, get so many times the stages."""


@dataclass(frozen=True)
class ConditionResult:
    """One condition; shares of verdicts, and the true shares of misses at both offered rates."""

    engine: str
    targets: str
    traffic: str
    utilisation: float
    ttft_ms: float
    tpot_ms: float | None
    edge_stages: int
    false_pass: float
    edge_fail: float
    edge_misses: float
    """True share of misses at 1.2 R."""
    edge_median_requests: float
    easy_stages: int
    power: float
    easy_fail: float
    easy_misses: float
    """True share of misses at 1.2 · 0.65 R."""
    easy_median_requests: float


@dataclass(frozen=True)
class Summary:
    """All conditions together, and the worst of them."""

    false_pass: float
    """Of the condition where it is largest."""
    false_pass_pooled: float
    false_pass_pooled_upper: float
    """Exact 95% upper bound."""
    false_pass_failing: float
    """Of a server that is fast and fails 3% of the requests."""
    false_pass_failing_in_bursts: float
    """Of one that fails 1.4%, many in a row: what misses in clusters are worth."""
    power: float
    """Of the condition where it is least."""
    power_pooled: float
    median_requests: float | None
    """Until a PASS that was deserved, warm-up included; None without any."""


def share(outcomes: Sequence[Outcome], verdict: Verdict) -> float:
    return sum(outcome.verdict is verdict for outcome in outcomes) / len(outcomes)


@dataclass(frozen=True)
class Condition:
    """An engine with targets that it just meets at `utilisation` of its saturation."""

    engine: Engine
    targets: Targets
    utilisation: float
    traffic: Traffic


CONDITIONS = tuple(
    Condition(engine, targets, utilisation, traffic)
    # The small engine's TPOT is worst where prompts come in bursts, not where they come most often: its rate is not
    # bound by it.
    for engine, kinds in ((LARGE, (Targets.TTFT, Targets.BOTH)), (SMALL, (Targets.TTFT,)))
    for utilisation in UTILISATIONS
    for traffic in (POISSON, BURSTY)
    for targets in kinds
)

CONDITIONS += tuple(Condition(TAILED, Targets.TTFT, 0.90, traffic) for traffic in (POISSON, BURSTY))

CONDITIONS += tuple(
    Condition(engine, Targets.TTFT, utilisation, traffic)
    for engine, utilisation in zip(HELD_OUT, (0.78, 0.90), strict=True)
    for traffic in (POISSON, BURSTY)
)

QUICK = (Condition(LARGE, Targets.TTFT, 0.70, POISSON), Condition(SMALL, Targets.TTFT, 0.95, BURSTY))
"""One where misses set in slowly with the rate, and one where a stage sees no miss for long though all will."""

QUICK_BELOW_STAGES = 50
FAILING, FAILING_IN_BURSTS = Failures(0.03), Failures(0.014, burst=6)
FAILING_STAGES, QUICK_FAILING_STAGES = 150, 75
QUICK_TRUTH_REQUESTS = 200_000


@dataclass(frozen=True)
class Tried:
    """A condition with the outcomes of its stages."""

    result: ConditionResult
    slo: Slo
    edge: list[Outcome]
    easy: list[Outcome]


def try_condition(
    condition: Condition, before: Tried | None = None, *, stages: int, truth_requests: int = TRUTH_REQUESTS
) -> Tried:
    """Run stages at the edge until there are `stages`, and a share of that easy ones; those of `before` count."""
    engine, traffic = condition.engine, condition.traffic
    rate = condition.utilisation * saturation(engine)
    if before is not None:
        slo = before.slo
    else:
        slo = targets_met(*long_run(engine, traffic, rate, TRUTH_SEED, requests=truth_requests), condition.targets)
    fewer = min(truth_requests, OFFERED_TRUTH_REQUESTS)

    def misses(share_of_rate: float) -> float:
        at = SAFETY * share_of_rate * rate
        return miss_share(*long_run(engine, traffic, at, TRUTH_SEED + 1, requests=fewer), slo)

    def run(share_of_rate: float, ended: Sequence[Outcome], wanted: int) -> list[Outcome]:
        at, seeds = SAFETY * share_of_rate * rate, range(STAGE_SEED + len(ended), STAGE_SEED + wanted)
        return [*ended, *(run_stage(engine, traffic, at, slo, seed) for seed in seeds)]

    edge = run(1.0, before.edge if before is not None else (), stages)
    easy = run(EASY_SHARE, before.easy if before is not None else (), max(1, round(EASY_STAGES_SHARE * stages)))
    result = ConditionResult(
        engine=engine.name,
        targets=condition.targets.value,
        traffic=traffic.name,
        utilisation=condition.utilisation,
        ttft_ms=round(1e3 * (slo.ttft_s or 0.0), 1),
        tpot_ms=None if slo.tpot_s is None else round(1e3 * slo.tpot_s, 1),
        edge_stages=len(edge),
        false_pass=round(share(edge, Verdict.PASS), 4),
        edge_fail=round(share(edge, Verdict.FAIL), 4),
        edge_misses=round(misses(1.0) if before is None else before.result.edge_misses, 4),
        edge_median_requests=float(np.median([outcome.requests for outcome in edge])),
        easy_stages=len(easy),
        power=round(share(easy, Verdict.PASS), 4),
        easy_fail=round(share(easy, Verdict.FAIL), 4),
        easy_misses=round(misses(EASY_SHARE) if before is None else before.result.easy_misses, 4),
        easy_median_requests=float(np.median([outcome.requests for outcome in easy])),
    )
    return Tried(result, slo, edge, easy)


def worst_of(results: Sequence[ConditionResult]) -> list[int]:
    """The indices of the conditions that come out worst by either measure."""
    by_pass = sorted(range(len(results)), key=lambda index: -results[index].false_pass)[:WORST]
    by_power = sorted(range(len(results)), key=lambda index: results[index].power)[:WORST]
    return sorted({*by_pass, *by_power})


def failing_pass(failures: Failures, stages: int) -> float:
    """The share of PASS of a server that is fast, and answers some requests with an error."""
    rate, slo = 0.5 * saturation(SMALL), Slo(ttft_s=60.0)
    found = [run_stage(SMALL, BURSTY, rate, slo, STAGE_SEED + number, failures) for number in range(stages)]
    return share(found, Verdict.PASS)


def summarise(tried: Sequence[Tried], failing: float, in_bursts: float) -> Summary:
    """The worst condition, and all stages together, each counted once."""
    edge = [outcome for one in tried for outcome in one.edge]
    easy = [outcome for one in tried for outcome in one.easy]
    passes = sum(outcome.verdict is Verdict.PASS for outcome in edge)
    deserved = [outcome.requests for outcome in easy if outcome.verdict is Verdict.PASS]
    return Summary(
        false_pass=max(one.result.false_pass for one in tried),
        false_pass_pooled=round(passes / len(edge), 4),
        false_pass_pooled_upper=round(clopper_pearson(passes, len(edge), 0.90).upper, 4),
        false_pass_failing=round(failing, 4),
        false_pass_failing_in_bursts=round(in_bursts, 4),
        power=min(one.result.power for one in tried),
        power_pooled=round(share(easy, Verdict.PASS), 4),
        median_requests=float(np.median(deserved)) if deserved else None,
    )
