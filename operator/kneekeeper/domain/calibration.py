"""How much longer the tails of open loops were than the twin says, and what that means for other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.stages import FOR_QUANTILES, twin_stage
from kneekeeper.domain.twin.surface import Tails
from kneekeeper.domain.twin.traffic import TwinTraffic

MOST_STRETCH = 2.0
"""A single stage's P99 near saturation is off by about that much: to follow it further would be believing noise."""

EXPLAINED = 1.0
"""Of a misfit, in standard errors: the P99 of a short stage is off by chance, too, and a law that explains all of them
together leaves nothing to be stretched."""

_BY_CHANCE = 0.95

_LEAST_TAIL = 0.05
"""Of the median: a shorter tail is that of the twin, whose machine has neither noise nor neighbours."""


def calibrate(stages: Sequence[StageSummary], traffic: TwinTraffic, fit: LawFit) -> Tails:
    """How far P99s are from their medians, over how far the twin has them, void stages left out; at least 1.

    From each certification by itself and, where the law explains the stages less well than their sampling errors would
    have it, from the open loops together. The law was fitted to these stages too; what is left is what it cannot
    express. What it cannot express on one setting is a matter of the steps of that
    setting: where all steps are alike, since the budget is small and always full, there is no tail to be longer. So
    it is the distance from the median that is stretched, and not the whole latency. Never shortened, since a single
    quiet stage proves little; stretched as far as the P99s are beyond chance.
    """
    explained = fit.misfit <= EXPLAINED
    short = [] if explained else [_excess(stage, traffic, fit.law) for stage in usable(stages, StageKind.OPEN)]
    long = [_excess(stage, traffic, fit.law) for stage in usable(stages, StageKind.CERTIFY, StageKind.BASELINE)]
    return Tails(
        ttft=_stretch([each.ttft for each in short], [each.ttft for each in long]),
        tpot=_stretch([each.tpot for each in short], [each.tpot for each in long]),
    )


@dataclass(frozen=True)
class _Excess:
    """Logarithms by which tails are longer than the twin's, by chance once in twenty times."""

    ttft: float = 0.0
    tpot: float = 0.0


def _excess(stage: StageSummary, traffic: TwinTraffic, law: Law) -> _Excess:
    twin = None if stage.saturated else twin_stage(stage, traffic, FOR_QUANTILES)
    if twin is None:
        return _Excess()
    measured = dict(zip(twin.statistics, twin.measured.tolist(), strict=True))
    predicted = dict(zip(twin.statistics, twin.blocks(law), strict=True))
    found = {}
    for name in ("ttft", "tpot"):
        median, tail = f"p50_{name}", f"p99_{name}"
        if median in measured and tail in measured:
            tails = np.expm1(predicted[tail] - predicted[median])
            by_chance = max(_LEAST_TAIL, float(np.quantile(tails, _BY_CHANCE)))
            longer = float(np.expm1(measured[tail] - measured[median])) / by_chance
            found[name] = max(0.0, float(np.log(max(longer, 1.0))))
    return _Excess(**found)


def _stretch(short: Sequence[float], long: Sequence[float]) -> float:
    """Short stages are judged together, each certification by itself."""
    together = [float(np.mean(short))] if short else []
    return min(MOST_STRETCH, float(np.exp(max([0.0, *together, *long]))))
