"""Which setting to certify, and at which rate: one input value, one output value.

Every pair of the grids inside the bounds is asked for the highest rate at which its predicted P99s stay inside
the targets with a margin (`prediction`). Among those within 5% of the best rate the fewest sequences win, then
the smallest token budget: less KV cache and shorter steps for the same promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.quantities import format_duration
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Certification, RunOutcome, SettingBounds, StageKind, StageSummary, Verdict
from kneekeeper.domain.boundary import Boundary
from kneekeeper.domain.calibration import calibrated
from kneekeeper.domain.control import mark_void, usable
from kneekeeper.domain.knee import ThroughputFit
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.prediction import BUSIEST, Prediction, Predictor, Traffic
from kneekeeper.domain.ramp import FAR_PAST
from kneekeeper.domain.steptime import StepTime

TTFT_MARGIN = 0.10
TPOT_MARGIN = 0.10
"""How much below its target a predicted P99 must be. With these and the next one all of 14 simulated choices held
their targets at the offered rate and 12 were within 25% of the best pair of a grid (the unit tests repeat it)."""

RATE_MARGIN = 0.12
"""Taken off the predicted rate. 14 simulated servers with another step-time law than the fitted one carried up
to 14% less than the fit of their ramp says, most of them 5 to 8%: a smaller budget than the ceiling's costs
steps, and an open loop leaves slots empty at times."""

SAME_RATE = 0.05
"""Settings whose rates differ by less are alike: no stage of this length could tell them apart."""

AFTER_FAIL = 0.8
AFTER_INCONCLUSIVE = 0.9
"""Of the offered rate of an earlier certification. A FAIL means well beyond: near the edge the sequential test
stays undecided."""

KV_SHARE = 0.8
"""Of the KV cache that mean requests may fill. Running requests are longer than the mean (long ones stay longer)
and their sum varies by a fifth with log-normal lengths; beyond the cache vLLM preempts."""

LEAST_LOAD = 0.02
"""Share of the capacity at which a setting must hold to be worth anything."""

_BISECTIONS = 10
"""Of the rate, to 1 in 1,000 of its range."""


@dataclass(frozen=True)
class ChooseInput:
    """Everything a choice rests on."""

    ladder: LadderSettings
    stages: Sequence[StageSummary]
    """All of the run, those of earlier certifications included."""
    fit: ThroughputFit
    boundary: Boundary
    step_time: StepTime | None
    bounds: SettingBounds
    kv_cache_tokens: int | None
    mean_tokens_per_request: float
    p99_prompt_tokens: int
    p99_output_tokens: int
    burstiness: float | None
    """Shape of the Gamma gaps; None for constant gaps."""
    previous: Sequence[Certification]
    sequence_grid: Sequence[int]
    token_grid: Sequence[int]


@dataclass(frozen=True)
class Chosen:
    """A setting and the highest rate (requests/s) at which it should hold the targets."""

    setting: Setting
    sustainable: float
    bound_by: BoundBy
    message: str


@dataclass(frozen=True)
class NoChoice:
    """Why there is nothing to certify."""

    reason: RunOutcome
    message: str


def choose(given: ChooseInput) -> Chosen | NoChoice:
    """The setting with the highest predicted rate inside the targets; without targets, the most tokens/s.

    ImpossibleSLO where even a single request at a time misses a target, or no setting is predicted to hold at
    any rate; Inconclusive where nothing was measured.
    """
    slo, stages = given.ladder.slo, mark_void(given.stages, given.ladder.control_tolerance)
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    predictor = calibrated(
        stages,
        given.fit,
        given.boundary,
        given.step_time,
        Traffic(
            given.ladder.prompt_tokens,
            mean_tokens(given.ladder.prompt_tokens),
            given.ladder.output_tokens,
            mean_tokens(given.ladder.output_tokens),
            given.p99_output_tokens,
            0.0 if given.burstiness is None else 1 / given.burstiness,
        ),
    )
    if predictor is None:
        return NoChoice(RunOutcome.INCONCLUSIVE, "No usable ramp stage with more than one output token.")
    alone = _missed_alone(ramp[0], slo)
    if alone is not None:
        return NoChoice(RunOutcome.IMPOSSIBLE_SLO, alone)
    limit = _sequence_limit(given, ramp)
    candidates = _candidates(given, ramp, limit)
    if not candidates:
        return NoChoice(
            RunOutcome.INCONCLUSIVE,
            f"No setting between {given.bounds.lowest} and {given.bounds.highest} was covered by the ramp "
            f"on {given.ladder.ceiling}. Widen spec.parameters or raise spec.probe.ladder.maxConcurrency.",
        )
    if slo == Slo():
        rates = {setting: predictor.capacity(setting) for setting in candidates}
        best = _smallest_alike(rates)
        return Chosen(best, rates[best], _bound_of_throughput(best, candidates, limit), _told(best, rates[best]))
    for margins in (Margins(TTFT_MARGIN, TPOT_MARGIN), Margins(0.0, 0.0)):
        rates = _highest_rates(predictor, candidates, slo, margins)
        if max(rates.values()) > 0:
            break
    else:
        return NoChoice(RunOutcome.IMPOSSIBLE_SLO, _no_rate(predictor, candidates, slo))
    best = _smallest_alike(rates)
    bound_by = _bound_of_latency(predictor, best, rates, slo, margins, limit)
    rate = min([(1 - RATE_MARGIN) * rates[best], *_after(given.previous)])
    return Chosen(best, rate, bound_by, _told(best, rate, predictor.predict(best, rate)))


@dataclass(frozen=True)
class Margins:
    """Shares by which predicted P99s stay below their targets."""

    ttft: float
    tpot: float

    def missed(self, prediction: Prediction, slo: Slo) -> set[BoundBy]:
        """Which kinds of target a prediction misses; E2E counts as TTFT, since waiting drives it."""
        missed: set[BoundBy] = set()
        if slo.tpot_s is not None and prediction.p99_tpot_s * (1 + self.tpot) > slo.tpot_s:
            missed.add(BoundBy.TPOT)
        if slo.ttft_s is not None and prediction.p99_ttft_s * (1 + self.ttft) > slo.ttft_s:
            missed.add(BoundBy.TTFT)
        if slo.e2e_s is not None and prediction.p99_e2e_s * (1 + self.tpot) > slo.e2e_s:
            missed.add(BoundBy.TTFT)
        return missed


def _missed_alone(alone: StageSummary, slo: Slo) -> str | None:
    """Why the targets are out of reach: one request at a time misses them. Few requests make a P99 of noise, so
    the median or most requests must miss, or the P99 by far."""
    for name, target, p50, p99 in (
        ("p99TTFT", slo.ttft_s, alone.p50_ttft, alone.p99_ttft),
        ("p99TPOT", slo.tpot_s, alone.p50_tpot, alone.p99_tpot),
    ):
        if target is not None and ((p50 or 0) > target or (p99 or 0) > FAR_PAST * target):
            return (
                f"At {alone.users} requests at a time P99 is {format_duration(p99 or 0)}, above "
                f"spec.slo.{name} {format_duration(target)}: no setting of the two limits can hold it. Raise the "
                "target, or use a faster engine."
            )
    if slo.e2e_s is not None and (alone.misses or 0) > alone.requests / 2:
        return (
            f"At {alone.users} requests at a time {alone.misses} of {alone.requests} miss the targets. Raise "
            "spec.slo.p99E2E, or use a faster engine."
        )
    return None


@dataclass(frozen=True)
class _Limit:
    sequences: int
    bound_by: BoundBy


def _sequence_limit(given: ChooseInput, ramp: Sequence[StageSummary]) -> _Limit:
    """The most sequences that may be chosen: never more than were tried."""
    tried = ramp[-1].users or 1
    limits = [_Limit(min(given.bounds.highest.max_num_seqs, given.ladder.ceiling.max_num_seqs, tried), BoundBy.BOUND)]
    if given.kv_cache_tokens is not None:
        held = int(KV_SHARE * given.kv_cache_tokens / given.mean_tokens_per_request)
        limits.append(_Limit(max(1, held), BoundBy.KV_CACHE))
    return min(limits, key=lambda limit: limit.sequences)


def _candidates(given: ChooseInput, ramp: Sequence[StageSummary], limit: _Limit) -> list[Setting]:
    """All pairs of the grids inside the bounds, no budget larger than the prefill that steps have had."""
    lowest, highest = given.bounds.lowest, given.bounds.highest
    sequences = [n for n in given.sequence_grid if lowest.max_num_seqs <= n <= limit.sequences]
    if not sequences and lowest.max_num_seqs <= given.ladder.ceiling.max_num_seqs:
        sequences = [lowest.max_num_seqs]  # the user's bound stands above what the KV cache or the ramp says
    budget = min(highest.max_num_batched_tokens, given.ladder.ceiling.max_num_batched_tokens)
    seen = _largest_prefill(given, ramp)
    tokens = [m for m in given.token_grid if lowest.max_num_batched_tokens <= m <= min(budget, seen)]
    if not tokens and lowest.max_num_batched_tokens <= budget:
        tokens = [lowest.max_num_batched_tokens]
    return [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in sequences for m in tokens if m >= n]


def _largest_prefill(given: ChooseInput, ramp: Sequence[StageSummary]) -> float:
    """Prompt tokens that one step has had: of the longest prompts, or of many users that arrive together."""
    alone = [stage.prompt_tokens_mean for stage in usable(given.stages, StageKind.PREFILL)]
    together = (ramp[-1].users or 1) * ramp[-1].prompt_tokens_mean
    return max([*alone, given.p99_prompt_tokens, together])


def _highest_rates(
    predictor: Predictor, candidates: Sequence[Setting], slo: Slo, margins: Margins
) -> dict[Setting, float]:
    """Per setting the highest rate at which all predicted P99s are inside; 0 where none is, or where it is not
    alike to the best of the settings before."""
    rates: dict[Setting, float] = {}
    best = 0.0
    for setting in candidates:
        low, high = 0.0, BUSIEST * predictor.capacity(setting)
        least = max(LEAST_LOAD * high, (1 - SAME_RATE) * best)
        if least < high and not margins.missed(predictor.predict(setting, least), slo):
            low = least
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                inside = not margins.missed(predictor.predict(setting, middle), slo)
                low, high = (middle, high) if inside else (low, middle)
        rates[setting] = low
        best = max(best, low)
    return rates


def _smallest_alike(rates: Mapping[Setting, float]) -> Setting:
    enough = (1 - SAME_RATE) * max(rates.values())
    alike = [setting for setting, rate in rates.items() if rate >= enough]
    return min(alike, key=lambda setting: (setting.max_num_seqs, setting.max_num_batched_tokens))


def _after(previous: Sequence[Certification]) -> list[float]:
    """Rates that earlier certifications leave open, requests/s."""
    shares = {Verdict.FAIL: AFTER_FAIL, Verdict.INCONCLUSIVE: AFTER_INCONCLUSIVE}
    return [shares[tried.verdict] * tried.offered_requests_per_second for tried in previous if tried.verdict in shares]


def _bound_of_throughput(best: Setting, candidates: Sequence[Setting], limit: _Limit) -> BoundBy:
    most = max(setting.max_num_seqs for setting in candidates)
    return limit.bound_by if best.max_num_seqs == most else BoundBy.KNEE


def _bound_of_latency(
    predictor: Predictor,
    best: Setting,
    rates: Mapping[Setting, float],
    slo: Slo,
    margins: Margins,
    limit: _Limit,
) -> BoundBy:
    """What keeps the rate from growing: more sequences would break TPOT, are not allowed, or would gain little
    throughput; else it is the wait."""
    larger = sorted((s for s in rates if s.max_num_seqs > best.max_num_seqs), key=lambda s: (s.max_num_seqs, -rates[s]))
    beyond = (1 + SAME_RATE) * rates[best]
    if BoundBy.TPOT in margins.missed(predictor.predict(best, beyond), slo) and beyond < BUSIEST * (
        predictor.capacity(best)
    ):
        return BoundBy.TPOT
    if not larger:
        return limit.bound_by
    next_larger = min(larger, key=lambda s: (s.max_num_seqs, s.max_num_batched_tokens))
    missed = margins.missed(predictor.predict(next_larger, beyond), slo)
    if BoundBy.TPOT in missed and beyond < BUSIEST * predictor.capacity(next_larger):
        return BoundBy.TPOT
    most = max(predictor.capacity(setting) for setting in rates)
    if predictor.capacity(best) >= (1 - SAME_RATE) * most:
        return BoundBy.KNEE
    return BoundBy.TPOT if slo.ttft_s is None and slo.e2e_s is None else BoundBy.TTFT


def _told(setting: Setting, rate: float, prediction: Prediction | None = None) -> str:
    told = f"{setting} should carry {rate:.3g} requests/s"
    if prediction is None:
        return f"{told}."
    return (
        f"{told}, with P99 TTFT near {format_duration(prediction.p99_ttft_s)} and P99 TPOT near "
        f"{format_duration(prediction.p99_tpot_s)}."
    )


def _no_rate(predictor: Predictor, candidates: Sequence[Setting], slo: Slo) -> str:
    idle = [predictor.predict(s, LEAST_LOAD * predictor.capacity(s)) for s in candidates]
    ttft_s, tpot_s = min(p.p99_ttft_s for p in idle), min(p.p99_tpot_s for p in idle)
    return (
        f"No setting holds the targets even at {LEAST_LOAD:.0%} load: the lowest predicted P99 TTFT is "
        f"{format_duration(ttft_s)}, P99 TPOT {format_duration(tpot_s)}. Raise the targets or the bounds."
    )
