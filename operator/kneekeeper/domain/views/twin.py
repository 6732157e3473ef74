"""What the twin says of a run's engine: the surface over both limits, predictions against rate, and what-if.

All of it rests on what the run stored: the law is fitted to its stages anew, by the code that the operator chooses
with, so that the page cannot disagree with the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, TuningRun
from kneekeeper.domain.calibration import calibrate
from kneekeeper.domain.candidates import Candidates, candidates
from kneekeeper.domain.choose import REQUESTS, RUNS
from kneekeeper.domain.control import usable
from kneekeeper.domain.lengths import quantile_tokens
from kneekeeper.domain.plan.evaluate import choose_input, evaluate
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.views.fleet import Limits
from kneekeeper.domain.views.units import four_digits, milliseconds

MOST_SEQUENCES, MOST_BUDGETS = 12, 6
"""Of the grids that are shown: more cells would take the twin longer than people wait."""

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Of the highest rate, at which predictions are made."""


class NoModelError(Exception):
    """Nothing can be predicted (yet). The message says why."""


@dataclass(frozen=True)
class Cell:
    """A setting and the highest rate that holds the targets under the fitted law; 0 where none does."""

    max_num_seqs: int
    max_num_batched_tokens: int
    requests_per_second: float


@dataclass(frozen=True)
class RatePoint:
    """Upper 90% limits of the predicted P99s at a rate."""

    requests_per_second: float
    p99_ttft_ms: float
    p99_tpot_ms: float


@dataclass(frozen=True)
class SurfaceView:
    """The surface, and the predictions of the setting that was chosen (else of the best cell)."""

    cells: tuple[Cell, ...]
    setting: Limits
    predictions: tuple[RatePoint, ...]


@dataclass(frozen=True)
class Question:
    """A setting, a rate and targets that a viewer asks about. Targets left out are the run's own."""

    setting: Setting
    requests_per_second: float
    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass(frozen=True)
class Answer:
    """What the twin predicts: upper 90% limits of the P99s, and the highest rate that its runs together hold."""

    limits: Limits
    requests_per_second: float
    holds: bool
    p99_ttft_ms: float
    p99_tpot_ms: float
    p99_e2e_ms: float
    highest_requests_per_second: float
    target_ttft_ms: float | None
    target_tpot_ms: float | None


@dataclass(frozen=True, eq=False)
class Model:
    """A run's engine as the twin knows it."""

    surface: Surface
    """Held to the run's own targets, without the margin of the choice: that is what it gives up for safety."""
    allowed: Candidates
    chosen: Setting | None


def model_of(run: TuningRun) -> Model:
    """Fit the run's engine; about a second. Raises NoModelError."""
    return _model(_Stored(run.model_dump_json(include={"status": {"plan", "sources", "stages", "fit"}}), run))


@lru_cache(maxsize=16)
def surface_of(model: Model) -> SurfaceView:
    """Every setting of the grids, under the fitted law alone; several seconds."""
    first, limits = model.surface.first(), model.surface.traffic.limits
    settings = shown_settings(model)
    has_targets = any(slo.has_target for slo in model.surface.targets)
    rates = {s: first.highest_rate(limits(s)) if has_targets else first.capacity(limits(s)) for s in settings}
    setting = model.chosen or max(rates, key=lambda each: rates[each])
    top = max(rates.get(setting, 0.0), 0.1 * max(rates.values()))
    predictions = [_rate_point(model, setting, share * top) for share in SHARES] if top > 0 else []
    return SurfaceView(
        cells=tuple(Cell(s.max_num_seqs, s.max_num_batched_tokens, four_digits(rate)) for s, rate in rates.items()),
        setting=Limits.of(setting),
        predictions=tuple(predictions),
    )


def answer(model: Model, question: Question) -> Answer:
    """What would happen; a few seconds."""
    slos = [with_targets(slo, question.ttft_s, question.tpot_s) for slo in model.surface.targets]
    held, limits = model.surface.with_targets(slos), model.surface.traffic.limits(question.setting)
    predicted = held.predicted(limits, question.requests_per_second)
    return Answer(
        limits=Limits.of(question.setting),
        requests_per_second=four_digits(question.requests_per_second),
        holds=held.holds(limits, question.requests_per_second),
        p99_ttft_ms=milliseconds(predicted.p99_ttft_s) or 0.0,
        p99_tpot_ms=milliseconds(predicted.p99_tpot_s) or 0.0,
        p99_e2e_ms=milliseconds(predicted.p99_e2e_s) or 0.0,
        highest_requests_per_second=four_digits(held.highest_rate(limits)),
        target_ttft_ms=milliseconds(slos[0].ttft_s),
        target_tpot_ms=milliseconds(slos[0].tpot_s),
    )


@dataclass(frozen=True)
class _Stored:
    """Runs are alike when all that a model rests on is."""

    text: str
    run: TuningRun

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stored) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=8)
def _model(stored: _Stored) -> Model:
    status = stored.run.status
    plan = status.plan
    if plan is None or not usable(status.stages, StageKind.RAMP) or not usable(status.stages, StageKind.CONTROL):
        raise NoModelError("The run has no usable ramp yet: the twin speaks once the engine was measured.")
    given = choose_input(plan, status, evaluate(plan, status))
    if given.engine is None:
        raise NoModelError("No stage of the run has a time per output token: nothing can be fitted to it.")
    allowed = candidates(
        given.stages,
        given.bounds,
        given.ladder.ceiling,
        given.traffic.kv_cache_tokens,
        given.sequence_grid,
        given.token_grid,
        quantile_tokens(given.ladder.prompt_tokens, 0.99),
        given.most_sequences,
    )
    if not allowed.settings:
        raise NoModelError(f"No setting between {given.bounds.lowest} and {given.bounds.highest} was covered.")
    laws = (given.engine.law, *given.engine.draws[: RUNS - 1])
    return Model(
        surface=Surface.drawn(given.traffic, given.slos, laws, REQUESTS).with_tails(
            calibrate(given.stages, given.traffic, given.engine)
        ),
        allowed=allowed,
        chosen=status.choices[-1].setting if status.choices else None,
    )


def shown_settings(model: Model) -> list[Setting]:
    """The settings of the surface: the grids thinned evenly, the chosen values kept."""
    settings, chosen = model.allowed.settings, model.chosen
    sequences = _thinned(
        sorted({s.max_num_seqs for s in settings}), MOST_SEQUENCES, chosen.max_num_seqs if chosen else None
    )
    budgets = _thinned(
        sorted({s.max_num_batched_tokens for s in settings}),
        MOST_BUDGETS,
        chosen.max_num_batched_tokens if chosen else None,
    )
    return [s for s in settings if s.max_num_seqs in sequences and s.max_num_batched_tokens in budgets]


def _thinned(values: Sequence[int], most: int, kept: int | None) -> set[int]:
    if len(values) <= most:
        return set(values)
    even = {values[round(step * (len(values) - 1) / (most - 1))] for step in range(most)}
    return even | ({kept} if kept is not None else set())


def _rate_point(model: Model, setting: Setting, rate: float) -> RatePoint:
    predicted = model.surface.predicted(model.surface.traffic.limits(setting), rate)
    return RatePoint(
        four_digits(rate),
        four_digits(1e3 * predicted.p99_ttft_s),
        four_digits(1e3 * predicted.p99_tpot_s),
    )


def with_targets(slo: Slo, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None = None) -> Slo:
    """Other targets; those that are None stay."""
    return Slo(
        ttft_s=slo.ttft_s if ttft_s is None else ttft_s,
        tpot_s=slo.tpot_s if tpot_s is None else tpot_s,
        e2e_s=slo.e2e_s if e2e_s is None else e2e_s,
    )
