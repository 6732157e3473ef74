"""Which setting to certify, and at which rate: one input value, one output value.

The twin runs the workload under every pair of the grids inside the bounds. First the fitted law alone tells the
highest rate of each; then, for the best of each max_num_seqs, laws from the fit's uncertainty, as `twin.surface` says.
Among those alike to the best the fewest sequences win, then the lowest P99 TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.quantities import counted, format_duration
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Certification, RunOutcome, StageKind, StageSummary
from kneekeeper.domain.binding import bound_by
from kneekeeper.domain.calibration import calibrate
from kneekeeper.domain.candidates import Candidates, candidates
from kneekeeper.domain.control import mark_void, usable
from kneekeeper.domain.knee import KneeCap
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.lengths import quantile_tokens
from kneekeeper.domain.most_tokens import most_tokens
from kneekeeper.domain.ramp import FAR_PAST
from kneekeeper.domain.still_believed import still_believed
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.surface import LOWEST_LOAD, RESOLUTION, Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

MARGIN = 0.02
"""How much below its target a predicted P99 must be, where any setting allows it: the twin's steps have no noise, and
its machine does not drift. What the fit does not know is not in here: that is what its draws are for."""

ALIKE = RESOLUTION
"""Predicted rates within this share are alike: the requests are the same, so what is left between them is the search's
resolution. What is given up here adds to what the model errs."""

LARGER_CACHE = 1.1
"""Of the ceiling's cache, as large as that of an engine with a smaller token budget may be (`own_cache`)."""

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
    users: int | None = None
    """Declared clients of a closed loop; None where there are as many as the engine takes."""
    knee_cap: KneeCap | None = None
    """Where the profile makes its knee a hard cap."""
    certified_by: int | None = None
    """Requests of the open loop that the choice is certified with; None where it is not, or with another load."""

    @property
    def most_sequences(self) -> int | None:
        return self.knee_cap.sequences if self.knee_cap is not None else None

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
    """The setting with the highest predicted rate inside the targets; without targets, the one with the most
    tokens/s (`most_tokens`).

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
        given.most_sequences,
    )
    cap, least = given.knee_cap, given.bounds.lowest.max_num_seqs
    if cap is not None and cap.sequences < least:
        return NoChoice(
            RunOutcome.INCONCLUSIVE,
            f"{cap.message} That is below {least}, the lower bound: lower spec.parameters.maxNumSeqs.min, or remove "
            "spec.parameters.kneeElasticityPercent.",
        )
    if not allowed.settings:
        return NoChoice(
            RunOutcome.INCONCLUSIVE,
            f"No setting between {given.bounds.lowest} and {given.bounds.highest} was covered by the ramp "
            f"on {given.ladder.ceiling}. Widen spec.parameters or raise spec.probe.ladder.maxConcurrency.",
        )
    if not any(slo.has_target for slo in given.slos):
        made = most_tokens(given.traffic, given.engine.law, allowed, given.users)
        return _capped(Chosen(made.setting, made.requests_per_s, made.bound_by, made.message), cap)
    surface = _surface(given, given.engine)
    found = choose_on(surface, allowed, given.previous)
    return _capped(found, cap) if found is not None else _out_of_reach(why_no_rate(surface, allowed), unmeasured)


def sustainable_with(given: ChooseInput, setting: Setting) -> float:
    """The highest rate (requests/s) at which one setting should hold the targets; 0 where none does, or nothing was
    fitted."""
    if given.engine is None:
        return 0.0
    surface, limits = _surface(given, given.engine), given.traffic.limits(setting)
    tight = surface.with_targets([_tightened(slo) for slo in surface.targets])
    rate = tight.highest_rate(limits) or surface.highest_rate(limits)
    return rate * still_believed(tight, given.previous)


def _surface(given: ChooseInput, engine: LawFit) -> Surface:
    surface = Surface.drawn(given.traffic, given.slos, (engine.law, *engine.draws[: RUNS - 1]), REQUESTS)
    stages = mark_void(given.stages, given.ladder.control_tolerance)
    return surface.with_tails(calibrate(stages, given.traffic, engine)).certified_by(given.certified_by)


def _capped(found: Chosen, cap: KneeCap | None) -> Chosen:
    """The choice with what caps it in its message."""
    return found if cap is None else replace(found, message=f"{found.message} {cap.message}")


def choose_on(surface: Surface, allowed: Candidates, previous: Sequence[Certification] = ()) -> Chosen | None:
    """The setting with the highest rate that holds the surface's targets, in the light of `previous` certifications;
    None where no setting holds them at any rate."""
    tight = surface.with_targets([_tightened(slo) for slo in surface.targets])
    found = _best(tight, allowed) or _best(surface, allowed)
    if found is None:
        return None
    rate = found.rate * still_believed(tight, previous)
    binding = bound_by(surface.first(), found.setting, found.rate_of_the_law, allowed)
    return Chosen(found.setting, rate, binding, _told(surface, found.setting, rate))


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
    """Why the targets are out of reach: one request at a time misses them; names all that it misses. Few requests make
    a P99 of noise, so the median or most requests must miss, or the P99 by far."""
    missed = [
        f"P99 {name} is {format_duration(p99 or 0)}, above spec.slo.p99{name} {format_duration(target)}"
        for name, target, p50, p99 in (
            ("TTFT", slo.ttft_s, alone.p50_ttft, alone.p99_ttft),
            ("TPOT", slo.tpot_s, alone.p50_tpot, alone.p99_tpot),
            ("E2E", slo.e2e_s, alone.p50_e2e, alone.p99_e2e),
        )
        if target is not None and ((p50 or 0) > target or (p99 or 0) > FAR_PAST * target)
    ]
    if not missed:
        return None
    these, raised = ("it", "target") if len(missed) == 1 else ("them", "targets")
    return (
        f"With {counted(alone.users or 1, 'request')} at a time {', and '.join(missed)}: no setting of the two limits "
        f"can hold {these}. Raise the {raised}, or use a faster engine."
    )


@dataclass(frozen=True)
class _Best:
    setting: Setting
    rate: float
    rate_of_the_law: float
    """Under the fitted law alone."""


def _best(surface: Surface, allowed: Candidates) -> _Best | None:
    """The choice on this surface; None where no setting holds at any rate."""
    by_law = _highest_rates(surface.first(), allowed.settings, 1 - WORTH_A_LOOK)
    found = _best_of(surface, by_law) if by_law else None
    best_by_law = max(by_law.values(), default=0.0)
    if found is not None and found.rate < (1 - WORTH_A_LOOK) * best_by_law:
        # What is not known takes more off these than others are below them.
        found = _best_of(surface, _highest_rates(surface.first(), allowed.settings, found.rate / best_by_law))
    return found


def _best_of(surface: Surface, by_law: Mapping[Setting, float]) -> _Best | None:
    limits = surface.traffic.limits
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
    fewest = _fewest(surface, rates)
    # Then the budget: of those alike, the one with the lowest P99 TPOT at the same rate.
    budgets = {fewest: rates[fewest]}
    for setting in sorted(by_law, key=lambda s: -by_law[s]):
        if setting.max_num_seqs == fewest.max_num_seqs and setting != fewest:
            best = max(budgets.values())
            budgets[setting] = surface.highest_rate(limits(setting), least=(1 - ALIKE) * best, near=best)
    first, common = surface.first(), max(budgets.values())
    chosen = min(_alike(budgets), key=lambda s: first.predicted(limits(s), common).p99_tpot_s)
    return _Best(chosen, budgets[chosen], by_law[chosen])


def _highest_rates(surface: Surface, settings: Sequence[Setting], share: float) -> dict[Setting, float]:
    """The highest rate of each setting that reaches this share of the best."""
    rates: dict[Setting, float] = {}
    best = 0.0
    for setting in sorted(settings, key=lambda s: (-s.max_num_seqs, -s.max_num_batched_tokens)):
        rate = surface.highest_rate(surface.traffic.limits(setting), least=share * best, near=best if best else None)
        if rate > 0:
            rates[setting] = rate
            best = max(best, rate)
    return {setting: rate for setting, rate in rates.items() if rate >= share * best}


def _fewest(surface: Surface, rates: Mapping[Setting, float]) -> Setting:
    """Of those alike the one with the fewest sequences, but none that carries less than others by the fitted law alone
    and with a larger KV cache. What is not known takes more off settings whose targets bind than off those that run
    out of sequences, and is as likely to turn out well; and the cache of an engine with a smaller token budget is
    larger than the ceiling's, as long as none has told its size."""
    alike = _alike(rates)
    if len(alike) == 1:
        return alike[0]
    law, traffic = surface.first(), surface.traffic
    if traffic.kv_cache_tokens is not None and not traffic.caches:
        law = replace(law, traffic=replace(traffic, kv_cache_tokens=int(LARGER_CACHE * traffic.kv_cache_tokens)))
    return _alike({s: law.highest_rate(law.traffic.limits(s), near=rates[s]) for s in alike})[0]


def _alike(rates: Mapping[Setting, float]) -> list[Setting]:
    """Those within ALIKE of the best, the fewest sequences and smallest budget first."""
    enough = (1 - ALIKE) * max(rates.values())
    alike = [setting for setting, rate in rates.items() if rate >= enough]
    return sorted(alike, key=lambda setting: (setting.max_num_seqs, setting.max_num_batched_tokens))


def _tightened(slo: Slo) -> Slo:
    """The targets less MARGIN."""
    targets = {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s, "e2e_s": slo.e2e_s}
    return Slo(**{name: None if value is None else (1 - MARGIN) * value for name, value in targets.items()})


def _told(surface: Surface, setting: Setting, rate: float) -> str:
    predicted = surface.predicted(surface.traffic.limits(setting), rate)
    whole = any(slo.e2e_s is not None for slo in surface.targets)
    e2e = f", of a whole request at most {format_duration(predicted.p99_e2e_s)}," if whole else ""
    return (
        f"{setting} should carry {rate:.3g} requests/s, with P99 TTFT at most "
        f"{format_duration(predicted.p99_ttft_s)} and P99 TPOT at most "
        f"{format_duration(predicted.p99_tpot_s)}{e2e} in nine of ten predictions."
    )


def why_no_rate(surface: Surface, allowed: Candidates) -> str:
    """What is out of reach where no setting holds, for people."""
    first, limits = surface.first(), surface.traffic.limits
    settings = (allowed.settings[0], allowed.settings[-1])
    idle = [first.predicted(limits(s), LOWEST_LOAD * first.capacity(limits(s))) for s in settings]
    ttft_s = min(p.p99_ttft_s for p in idle)
    tpot_s, e2e_s = min(p.p99_tpot_s for p in idle), min(p.p99_e2e_s for p in idle)
    return (
        f"No setting holds the targets even at {LOWEST_LOAD:.0%} load: the lowest predicted P99 TTFT is "
        f"{format_duration(ttft_s)}, P99 TPOT {format_duration(tpot_s)}, P99 E2E {format_duration(e2e_s)}. Raise "
        "the targets or the bounds."
    )
