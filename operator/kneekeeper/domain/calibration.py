"""How far an open loop was from what the twin says of it, and what that means for other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.stages import FOR_QUANTILES, twin_stage
from kneekeeper.domain.twin.traffic import TwinTraffic

MOST_SCALE = 1.5
"""A single stage's P99 is off by this much near saturation; to follow it further would be believing noise."""

_BY_CHANCE = 0.95


@dataclass(frozen=True)
class Scales:
    """By which factors P99s are raised; at least 1."""

    ttft: float = 1.0
    tpot: float = 1.0

    def tightened(self, slo: Slo, margin: float) -> Slo:
        """The targets for predictions that are not raised: lower by the scales and by `margin`, a share."""
        return Slo(
            ttft_s=_over(slo.ttft_s, self.ttft * (1 + margin)),
            tpot_s=_over(slo.tpot_s, self.tpot * (1 + margin)),
            # Answers consist of tokens, so E2E is mostly TPOT.
            e2e_s=_over(slo.e2e_s, self.tpot * (1 + margin)),
        )


def calibrate(stages: Sequence[StageSummary], traffic: TwinTraffic, law: Law) -> Scales:
    """Scales from the open-loop stages and the certifications, void ones left out.

    The law was fitted to these stages too; what is left is what it cannot express. Never lowered, since a single
    quiet stage proves little; raised as far as the P99s are beyond chance.
    """
    short = [_excess(stage, traffic, law) for stage in usable(stages, StageKind.OPEN)]
    long = [_excess(stage, traffic, law) for stage in usable(stages, StageKind.CERTIFY, StageKind.BASELINE)]
    return Scales(
        ttft=_scale([each.ttft for each in short], [each.ttft for each in long]),
        tpot=_scale([each.tpot for each in short], [each.tpot for each in long]),
    )


@dataclass(frozen=True)
class _Excess:
    """Logarithms by which P99s are beyond what the twin shows by chance once in twenty times."""

    ttft: float = 0.0
    tpot: float = 0.0


def _excess(stage: StageSummary, traffic: TwinTraffic, law: Law) -> _Excess:
    twin = None if stage.saturated else twin_stage(stage, traffic, FOR_QUANTILES)
    if twin is None:
        return _Excess()
    beyond = {
        name: max(0.0, float(measured - np.quantile(blocks, _BY_CHANCE)))
        for name, measured, blocks in zip(twin.statistics, twin.measured, twin.blocks(law), strict=True)
    }
    return _Excess(beyond.get("p99_ttft", 0.0), beyond.get("p99_tpot", 0.0))


def _scale(short: Sequence[float], long: Sequence[float]) -> float:
    """Short stages are judged together, each certification by itself."""
    together = [float(np.mean(short))] if short else []
    return min(MOST_SCALE, float(np.exp(max([0.0, *together, *long]))))


def _over(target_s: float | None, factor: float) -> float | None:
    return None if target_s is None else target_s / factor
