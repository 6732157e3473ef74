"""Which setting to certify, and at which rate: one input value, one output value.

The twin runs the workload under every pair of the grids inside the bounds. First the fitted law alone tells the
highest rate of each; then, for the best of each max_num_seqs, laws from the fit's uncertainty: a rate holds when the
upper 90% limit of the predicted P99s is inside the targets. Among those alike to the best the fewest sequences win,
then the lowest P99 TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.quantities import format_duration
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Certification, RunOutcome, SettingBounds, StageKind, StageSummary, Verdict
from kneekeeper.domain.binding import bound_by
from kneekeeper.domain.calibration import Scales, calibrate
from kneekeeper.domain.candidates import Candidates, candidates
from kneekeeper.domain.control import mark_void, usable
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.lengths import quantile_tokens
from kneekeeper.domain.ramp import FAR_PAST
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.surface import LOWEST_LOAD, Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

MARGIN = 0.05
"""How much below its target a predicted P99 must be: the law has the shape that it has, whatever its coefficients."""

SAME_RATE = 0.05
"""Settings whose rates differ by less are alike: no stage of this length could tell them apart."""

ALIKE = SAME_RATE - 0.02
"""Predicted rates within this share are alike: they are searched to 2%, and shall differ by less than SAME_RATE."""

AFTER_FAIL = 0.9
AFTER_INCONCLUSIVE = 0.95
"""Of the offered rate of an earlier certification. A FAIL means well beyond: near the edge the sequential test
stays undecided."""

RUNS = 10
"""Laws with requests of their own: the second worst is the upper 90% limit."""

REQUESTS = 2000
"""Of a run, as many as a certification has: a P99 rests on twenty of them."""

WORTH_A_LOOK = 0.1
"""Settings whose rate under the fitted law is this share below the best are not looked at closer."""


@dataclass(frozen=True)
class ChooseInput:
    """Everything a choice rests on."""

    ladder: LadderSettings
    stages: Sequence[StageSummary]
    """All of the run, those of earlier certifications included."""
    engine: LawFit | None
    """Fitted to the same stages."""
    traffic: TwinTraffic
    bounds: SettingBounds
    previous: Sequence[Certification]
    sequence_grid: Sequence[int]
    token_grid: Sequence[int]

    @property
    def slos(self) -> tuple[Slo, ...]:
        """The targets of each kind of request."""
        return tuple(kind.slo for kind in self.traffic.classes) or (self.ladder.slo,)


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
    any rate; Inconclusive where nothing was measured, and in place of ImpossibleSLO where the stage of one user was
    not, or a level of the ramp was only ever invalid or unsteady: a starved client or a noisy machine is slow as
    well. Deterministic. Takes seconds.
    """
    stages = mark_void(given.stages, given.ladder.control_tolerance)
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    if given.engine is None or not ramp:
        return NoChoice(RunOutcome.INCONCLUSIVE, "No usable ramp stage with more than one output token.")
    unmeasured = _first_not_measured(stages)
    alone = _missed_alone(ramp[0], given.ladder.slo)
    if alone is not None:
        return _out_of_reach(alone, unmeasured if unmeasured is not None and unmeasured.users == 1 else None)
    allowed = candidates(
        stages,
        given.bounds,
        given.ladder.ceiling,
        given.traffic.kv_cache_tokens,
        given.sequence_grid,
        given.token_grid,
        quantile_tokens(given.ladder.prompt_tokens, 0.99),
    )
    if not allowed.settings:
        return NoChoice(
            RunOutcome.INCONCLUSIVE,
            f"No setting between {given.bounds.lowest} and {given.bounds.highest} was covered by the ramp "
            f"on {given.ladder.ceiling}. Widen spec.parameters or raise spec.probe.ladder.maxConcurrency.",
        )
    laws = (given.engine.law, *given.engine.draws[: RUNS - 1])
    surface = Surface.drawn(given.traffic, given.slos, laws, REQUESTS)
    if all(slo == Slo() for slo in given.slos):
        return _most_tokens(surface.first(), allowed)
    scales = calibrate(stages, given.traffic, given.engine.law)
    for margin in (MARGIN, 0.0):
        held = surface.with_targets([scales.tightened(slo, margin) for slo in given.slos])
        found = _best(held, allowed)
        if found is not None:
            break
    else:
        return _out_of_reach(_no_rate(surface, allowed, scales), unmeasured)
    rate = min([found.rate, *_after(given.previous)])
    binding = bound_by(held.first(), found.setting, found.rate_of_the_law, allowed)
    return Chosen(found.setting, rate, binding, _told(surface, found.setting, rate, scales))


def _out_of_reach(found: str, unmeasured: StageSummary | None) -> NoChoice:
    """ImpossibleSLO because of `found`, unless it rests on a ramp in which the level of `unmeasured` is missing."""
    if unmeasured is None:
        return NoChoice(RunOutcome.IMPOSSIBLE_SLO, found)
    told = unmeasured.message.rstrip(".")
    why = (
        f"The ramp's level of {unmeasured.users} user(s) gave no valid, steady stage ({told}), so it is open whether "
        "the engine misses the targets or a starved load agent or a noisy machine does. Give the agent a free core, "
        f"look for other work on the node, and tune again. What was measured: {found}"
    )
    return NoChoice(RunOutcome.INCONCLUSIVE, why)


def _first_not_measured(stages: Sequence[StageSummary]) -> StageSummary | None:
    """The last try of the lowest level of the ramp that was tried and is not usable; None when all are."""
    measured = {stage.users for stage in usable(stages, StageKind.RAMP)}
    tried = [stage for stage in stages if stage.kind is StageKind.RAMP and stage.users not in measured]
    return min(reversed(tried), key=lambda stage: stage.users or 0, default=None)


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
class _Best:
    setting: Setting
    rate: float
    rate_of_the_law: float
    """Under the fitted law alone."""


def _best(surface: Surface, allowed: Candidates) -> _Best | None:
    """The choice on this surface; None where no setting holds at any rate."""
    limits = surface.traffic.limits
    by_law = _highest_rates(surface.first(), allowed.settings)
    if not by_law:
        return None
    # Of each max_num_seqs its best budget: what the uncertainty takes off hardly depends on the budget.
    of_sequences: dict[int, Setting] = {}
    for setting in sorted(by_law, key=lambda s: by_law[s]):
        of_sequences[setting.max_num_seqs] = setting
    rates: dict[Setting, float] = {}
    for setting in sorted(of_sequences.values(), key=lambda s: -by_law[s]):
        best = max(rates.values(), default=0.0)
        near = best or by_law[setting]
        rates[setting] = surface.highest_rate(limits(setting), least=(1 - ALIKE) * best, near=near)
    if max(rates.values()) <= 0:
        return None
    fewest = _alike(rates)[0]
    # Then the budget: those alike under the law, by the P99 TPOT that they would show at the same rate.
    budgets = {s: rate for s, rate in by_law.items() if s.max_num_seqs == fewest.max_num_seqs}
    first, common = surface.first(), rates[fewest]
    by_tpot = sorted(_alike(budgets), key=lambda s: first.predicted(limits(s), common).p99_tpot_s)
    for setting in by_tpot:
        rate = surface.highest_rate(limits(setting), least=(1 - ALIKE) * common, near=common)
        if rate > 0:
            return _Best(setting, rate, by_law[setting])
    return _Best(fewest, common, by_law[fewest])


def _highest_rates(surface: Surface, settings: Sequence[Setting]) -> dict[Setting, float]:
    """The highest rate of each setting that may be worth a closer look."""
    rates: dict[Setting, float] = {}
    best = 0.0
    for setting in sorted(settings, key=lambda s: (-s.max_num_seqs, -s.max_num_batched_tokens)):
        rate = surface.highest_rate(
            surface.traffic.limits(setting), least=(1 - WORTH_A_LOOK) * best, near=best if best else None
        )
        if rate > 0:
            rates[setting] = rate
            best = max(best, rate)
    return {setting: rate for setting, rate in rates.items() if rate >= (1 - WORTH_A_LOOK) * best}


def _alike(rates: Mapping[Setting, float]) -> list[Setting]:
    """Those within ALIKE of the best, the fewest sequences and smallest budget first."""
    enough = (1 - ALIKE) * max(rates.values())
    alike = [setting for setting, rate in rates.items() if rate >= enough]
    return sorted(alike, key=lambda setting: (setting.max_num_seqs, setting.max_num_batched_tokens))


def _most_tokens(surface: Surface, allowed: Candidates) -> Chosen:
    """The most requests/s of a full batch, which is the most tokens/s of this workload."""
    limits = surface.traffic.limits
    rates = {setting: surface.capacity(limits(setting)) for setting in allowed.settings}
    fewest = _alike(rates)[0].max_num_seqs
    alike = [setting for setting in _alike(rates) if setting.max_num_seqs == fewest]
    best = min(alike, key=lambda s: surface.predicted(limits(s), rates[s]).p99_tpot_s)
    at_the_end = fewest == max(setting.max_num_seqs for setting in allowed.settings)
    told = f"{best} should carry {rates[best]:.3g} requests/s."
    return Chosen(best, rates[best], allowed.sequences.bound_by if at_the_end else BoundBy.KNEE, told)


def _after(previous: Sequence[Certification]) -> list[float]:
    """Rates that earlier certifications leave open, requests/s."""
    shares = {Verdict.FAIL: AFTER_FAIL, Verdict.INCONCLUSIVE: AFTER_INCONCLUSIVE}
    return [shares[tried.verdict] * tried.offered_requests_per_second for tried in previous if tried.verdict in shares]


def _told(surface: Surface, setting: Setting, rate: float, scales: Scales) -> str:
    predicted = surface.predicted(surface.traffic.limits(setting), rate)
    return (
        f"{setting} should carry {rate:.3g} requests/s, with P99 TTFT at most "
        f"{format_duration(scales.ttft * predicted.p99_ttft_s)} and P99 TPOT at most "
        f"{format_duration(scales.tpot * predicted.p99_tpot_s)} in nine of ten predictions."
    )


def _no_rate(surface: Surface, allowed: Candidates, scales: Scales) -> str:
    first, limits = surface.first(), surface.traffic.limits
    settings = (allowed.settings[0], allowed.settings[-1])
    idle = [first.predicted(limits(s), LOWEST_LOAD * first.capacity(limits(s))) for s in settings]
    ttft_s = scales.ttft * min(p.p99_ttft_s for p in idle)
    tpot_s = scales.tpot * min(p.p99_tpot_s for p in idle)
    return (
        f"No setting holds the targets even at {LOWEST_LOAD:.0%} load: the lowest predicted P99 TTFT is "
        f"{format_duration(ttft_s)}, P99 TPOT {format_duration(tpot_s)}. Raise the targets or the bounds."
    )
