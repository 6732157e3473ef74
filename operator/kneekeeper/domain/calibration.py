"""How far an open loop was from what the twin says of it, and what that means for other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.stages import twin_stage
from kneekeeper.domain.twin.traffic import TwinTraffic

MOST_SCALE = 1.5
"""A single stage's P99 is off by this much near saturation; to follow it further would be believing noise."""

_Z95 = 1.645


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
class _Gap:
    """Logarithm of measured over predicted, and its standard error; None where nothing can be compared."""

    excess: float
    error: float


@dataclass(frozen=True)
class _Excess:
    ttft: _Gap | None
    tpot: _Gap | None


def _excess(stage: StageSummary, traffic: TwinTraffic, law: Law) -> _Excess:
    twin = None if stage.saturated else twin_stage(stage, traffic)
    if twin is None:
        return _Excess(None, None)
    twin = twin.with_errors_of(law)
    gaps = dict(zip(twin.statistics, twin.measured - twin.predict(law), strict=True))
    errors = dict(zip(twin.statistics, twin.sampling_error, strict=True))

    def gap(name: str) -> _Gap | None:
        return _Gap(float(gaps[name]), float(errors[name])) if name in gaps else None

    return _Excess(gap("p99_ttft"), gap("p99_tpot"))


def _scale(short: Sequence[_Gap | None], long: Sequence[_Gap | None]) -> float:
    # Two short stages are judged together, each certification by itself.
    groups = [[gap for gap in short if gap is not None], *([gap] for gap in long if gap is not None)]
    beyond = [_beyond_chance(group) for group in groups if group]
    return min(MOST_SCALE, float(np.exp(max([0.0, *beyond]))))


def _beyond_chance(gaps: Sequence[_Gap]) -> float:
    """The lower 95% limit of the mean excess."""
    error = float(np.sqrt(sum(gap.error**2 for gap in gaps))) / len(gaps)
    return float(np.mean([gap.excess for gap in gaps])) - _Z95 * error


def _over(target_s: float | None, factor: float) -> float | None:
    return None if target_s is None else target_s / factor
