"""The law of an engine from the stages that were measured on it: the twin runs each stage, the law is what agrees.

A stage's throughput and quantiles are no simple function of the step time: a closed loop merges prompts, an open one
queues, the API process delays both. So each stage is run in the twin, with the same users or rate and lengths of the
same distribution, and the coefficients are those with which its output rate, median and P99 TPOT and TTFT come
nearest to the measured ones (simulated moments: McFadden 1989, Econometrica 57; Gauss-Newton on logarithms, Huber's
weights against stages that something disturbed). Coefficients that a ramp may not tell apart are held by a prior: a
share of the step time around a start value, 0 for what the data must demand.

Uncertainty is a parametric bootstrap: what was measured is drawn anew within its errors, the prior's means within its
widths; each replicate is solved linearised at the estimate, with no coefficient below 0. Stages are not redrawn: some
coefficients are told by one stage alone, which would be missing from a third of the replicates. Half of an error's
variance is common to all that a stage tells, since a machine that is slow for a minute is slow in all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import optimize

from kneekeeper.domain.samples import Floats
from kneekeeper.domain.twin.law import Law

TERMS = (
    "base_s",
    "per_sequence_s",
    "per_kv_token_s",
    "per_prefill_token_s",
    "per_prefill_token_squared_s",
    "per_prefill_pair_s",
    "prefill_step_s",
    "api_request_s",
    "api_token_s",
)
"""The coefficients of `Law` that are fitted."""

_ITERATIONS = 8
_ENOUGH = 0.01
"""Of the cost: a smaller gain ends the iteration."""
_DIFFERENCE = 0.04
"""Of the prior's width: the twin's quantiles move in small jumps, so derivatives are taken over some distance."""
_HUBER = 1.5
_SEED = 20_243
REPLICATES = 200
_PRIOR_DRAWS = 2000

WEAK = 0.6
"""A coefficient that leaves more than this share of its prior's width is one that the stages hardly tell of."""


class Evidence(Protocol):
    """Something that was measured on the engine, and what a law says of it; all as logarithms."""

    @property
    def measured(self) -> Floats:
        """What was measured."""

    @property
    def error(self) -> Floats:
        """Its standard errors."""

    def predict(self, law: Law) -> Floats:
        """What it would have been under this law."""

    def with_errors_of(self, law: Law) -> Evidence:
        """The same with the errors that this law implies, where they are larger."""


@dataclass(frozen=True)
class Prior:
    """Where a coefficient is expected and how widely, in its own unit."""

    mean: Floats
    width: Floats
    """One of each for every entry of TERMS, widths above 0."""


@dataclass(frozen=True, eq=False)
class LawFit:
    """A law with its uncertainty."""

    law: Law
    draws: tuple[Law, ...]
    """Bootstrap replicates, in random order."""
    condition: float
    """Of the data's part of the scaled normal equations, for the coefficients on which the evidence depends at all:
    above 1e6 some are known by the prior only."""
    told: dict[str, float]
    """By coefficient, the share of the prior's width that the data leave: near 0 is well known, 1 not at all."""
    misfit: float
    """Root mean square of the weighted residuals: 1 where the law explains all but the sampling error."""

    @property
    def weak(self) -> tuple[str, ...]:
        """Coefficients that the stages hardly tell of."""
        return tuple(term for term, share in self.told.items() if share > WEAK)


def fit_law(stages: Sequence[Evidence], prior: Prior) -> LawFit | None:
    """The law that agrees best with the stages; None without any.

    Deterministic. Takes about one millisecond per stage, coefficient and iteration.
    """
    if not stages:
        return None
    position, width = prior.mean / prior.width, prior.width
    stages = [stage.with_errors_of(_law(prior.mean)) for stage in stages]
    measured = np.concatenate([stage.measured for stage in stages])
    error = np.concatenate([stage.error for stage in stages])

    def residuals(at: Floats) -> Floats:
        law = _law(at * width)
        predicted = np.concatenate([stage.predict(law) for stage in stages])
        return np.asarray((measured - predicted) / error, dtype=np.float64)

    start = position.copy()
    current = residuals(position)
    damping = 0.1
    jacobian, weight = np.zeros((0, 0)), np.zeros(0)
    for _ in range(_ITERATIONS):
        jacobian = _jacobian(residuals, position, current)
        weight = _huber(current)
        cost = _cost(current, position - start)
        gained = 0.0
        for _ in range(4):
            step = _solve(jacobian, weight, current, position - start, damping)
            tried = np.maximum(position + step, 0.0)
            there = residuals(tried)
            gained = cost - _cost(there, tried - start)
            if gained > 0:
                position, current, damping = tried, there, damping / 3
                break
            damping = max(damping, 1e-3) * 10
        if gained <= _ENOUGH * cost:
            break
    draws, spread = _bootstrap(stages, jacobian, current, position, start)
    moved = jacobian[:, np.any(jacobian != 0, axis=0)]
    return LawFit(
        law=_law(position * width),
        draws=tuple(_law(draw * width) for draw in draws),
        condition=float(np.linalg.cond(moved.T @ (_huber(current)[:, None] * moved))),
        told={term: float(min(1.0, share)) for term, share in zip(TERMS, spread, strict=True)},
        misfit=float(np.sqrt(np.mean(current**2))),
    )


def coefficients(law: Law) -> Floats:
    """The fitted coefficients of a law, in the order of TERMS."""
    return np.array([getattr(law, term) for term in TERMS], dtype=np.float64)


def _law(values: Floats) -> Law:
    return Law(**dict(zip(TERMS, values.tolist(), strict=True)))


def _jacobian(residuals: Callable[[Floats], Floats], position: Floats, current: Floats) -> Floats:
    columns = []
    for place in range(position.size):
        moved = position.copy()
        moved[place] += _DIFFERENCE
        columns.append((residuals(moved) - current) / _DIFFERENCE)
    return np.column_stack(columns)


def _huber(residual: Floats) -> Floats:
    return np.asarray(np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), 1e-9)), dtype=np.float64)


def _cost(residual: Floats, from_start: Floats) -> float:
    size = np.abs(residual)
    huber = np.where(size <= _HUBER, size**2 / 2, _HUBER * size - _HUBER**2 / 2)
    return float(huber.sum() + (from_start**2).sum() / 2)


def _solve(jacobian: Floats, weight: Floats, residual: Floats, from_start: Floats, damping: float) -> Floats:
    normal = jacobian.T @ (weight[:, None] * jacobian) + np.eye(from_start.size)
    normal += damping * np.diag(np.diag(normal))
    return np.asarray(np.linalg.solve(normal, -(jacobian.T @ (weight * residual) + from_start)), dtype=np.float64)


def _bootstrap(
    stages: Sequence[Evidence], jacobian: Floats, residual: Floats, position: Floats, start: Floats
) -> tuple[list[Floats], Floats]:
    """Replicates of the scaled coefficients, and the width of each over its prior's."""
    rng = np.random.default_rng(_SEED)
    stage_of = np.repeat(np.arange(len(stages)), [stage.measured.size for stage in stages])
    weight = _huber(residual)
    # Where the law explains less than the sampling error says, all errors are as much larger.
    excess = max(1.0, float(np.sqrt(np.mean(weight * residual**2))))
    scale = np.sqrt(weight) / excess
    design = np.vstack([scale[:, None] * jacobian, np.eye(start.size)])
    estimate = scale * (jacobian @ position - residual)
    replicates = []
    for _ in range(REPLICATES):
        of_stages, own = rng.standard_normal(len(stages)), rng.standard_normal(residual.size)
        drawn = estimate + (of_stages[stage_of] + own) / np.sqrt(2)
        # A coefficient that ends at 0 is compensated by the others, so clipping afterwards would be biased.
        solved, _ = optimize.nnls(design, np.concatenate([drawn, start + rng.standard_normal(start.size)]))
        replicates.append(solved)
    nothing_known = np.maximum(start + rng.standard_normal((_PRIOR_DRAWS, start.size)), 0.0)
    return replicates, _width(np.array(replicates)) / _width(nothing_known)


def _width(draws: Floats) -> Floats:
    """Between the outer sixths."""
    low, high = np.quantile(draws, [0.16, 0.84], axis=0)
    return np.asarray(high - low, dtype=np.float64)
