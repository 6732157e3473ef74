"""How long one engine step takes: T = a + b B + d P, with B decoding sequences and P prefilled tokens.

What it ignores: the KV cache that attention reads (it ends up in b, for the lengths that were measured), the
quadratic part of long prefills, the padding of batches to graph sizes, and the cost of the API process. It is
good for comparing settings inside the measured range, not for extrapolating, and certification settles what it
gets wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable

MIN_BUSY_SHARE_LEFT = 0.05
"""Prefill cannot take all of the time of an engine that also decodes; guards a slope that noise made absurd."""


@dataclass(frozen=True)
class StepTime:
    """Seconds: of an empty step, per decoding sequence, per prefilled token."""

    base_s: float
    per_sequence_s: float
    per_prefill_token_s: float

    def step_s(self, sequences: float, prefill_tokens: float) -> float:
        """Duration of one step."""
        return self.base_s + self.per_sequence_s * sequences + self.per_prefill_token_s * prefill_tokens


def fit_step_time(stages: Sequence[StageSummary]) -> StepTime | None:
    """Least squares with relative errors; None where no ramp stage has a TPOT.

    d is the slope of TTFT over prompt length in the prefill-only stages. In a closed loop every step carries
    on average X p T prefill tokens (X requests/s, p prompt tokens), so a median TPOT T of a ramp stage is
    T = a + b N + d X p T: what remains of it, T (1 - d X p), is fitted by a + b N. With fewer than two prompt
    lengths d comes from the TTFT of a single user, which charges it with the whole API process.
    """
    ramp = [stage for stage in usable(stages, StageKind.RAMP) if stage.p50_tpot and stage.users]
    if not ramp:
        return None
    per_token_s = _prefill_slope(stages, ramp)
    users = np.array([stage.users for stage in ramp], dtype=np.float64)
    left = [max(MIN_BUSY_SHARE_LEFT, 1 - per_token_s * s.requests_per_second * s.prompt_tokens_mean) for s in ramp]
    decode_s = np.array([stage.p50_tpot for stage in ramp], dtype=np.float64) * np.array(left)
    base_s, per_sequence_s = _line(users, decode_s)
    return StepTime(base_s, per_sequence_s, per_token_s)


def _prefill_slope(stages: Sequence[StageSummary], ramp: Sequence[StageSummary]) -> float:
    prefill = [stage for stage in usable(stages, StageKind.PREFILL) if stage.p50_ttft]
    if len({round(stage.prompt_tokens_mean) for stage in prefill}) >= 2:
        tokens = np.array([stage.prompt_tokens_mean for stage in prefill])
        ttft_s = np.array([stage.p50_ttft for stage in prefill], dtype=np.float64)
        return _line(tokens, ttft_s)[1]
    alone = min(ramp, key=lambda stage: stage.users or 0)
    return max(0.0, (alone.p50_ttft or 0.0) - (alone.p50_tpot or 0.0)) / max(alone.prompt_tokens_mean, 1.0)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Intercept and slope of y over x with relative errors, both at least 0."""
    if x.size == 1 or np.ptp(x) == 0:
        return float(np.mean(y)), 0.0
    design = np.column_stack([1 / y, x / y])
    (intercept, slope), *_ = np.linalg.lstsq(design, np.ones(x.size), rcond=None)
    if slope < 0:
        return float(1 / np.mean(1 / y)), 0.0
    if intercept < 0:
        return 0.0, float(1 / np.mean(x / y))
    return float(intercept), float(slope)
