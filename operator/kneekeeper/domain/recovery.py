"""When an engine has recovered from a stage, so that the next one does not measure what is left of it.

It has when the declared pause is over, nothing runs or waits, and its KV cache is free. vLLM writes these gauges
at the end of a step: when a load is broken off at once no further step comes, and they keep their last, high
values for ever. One tiny request makes a step; what is read after it is true.
"""

from __future__ import annotations

from enum import Enum, auto

from kneekeeper.api.offered_load import Closed, Fixed
from kneekeeper.api.stage import Limits, StageSpec, Target
from kneekeeper.domain.observation import EngineMetrics, Unreachable

WAKE_AFTER_S = 5.0
"""What is still busy then was broken off, or serves the last of a stage: an engine that is at work is not
disturbed by one token."""

LONGEST_DRAIN_S = 30.0
"""After this long the engine is taken for idle, whatever its gauges say."""

IDLE_KV_SHARE = 0.01
"""vLLM counts blocks that are kept for their prefixes as free; a few may be held back."""

WAKE_TIMEOUT_S = 5.0


class Recovery(Enum):
    """What to do before the next stage."""

    WAIT = auto()
    WAKE = auto()
    """Send one tiny request, and look again."""
    OVER = auto()


def recovery(
    metrics: EngineMetrics | Unreachable | None,
    *,
    passed_s: float,
    pause_s: float,
    longest_s: float = LONGEST_DRAIN_S,
) -> Recovery:
    """Judge an engine `passed_s` after the last stage; `pause_s` is the least time between stages, `longest_s` that
    after which it is taken for idle.

    A negative time, of a clock that was set back, is no reason to wait.
    """
    if 0 <= passed_s < pause_s:
        return Recovery.WAIT
    if _is_idle(metrics) or not 0 <= passed_s <= max(pause_s, longest_s):
        return Recovery.OVER
    return Recovery.WAKE if isinstance(metrics, EngineMetrics) and passed_s >= WAKE_AFTER_S else Recovery.WAIT


def _is_idle(metrics: EngineMetrics | Unreachable | None) -> bool:
    if not isinstance(metrics, EngineMetrics) or metrics.running + metrics.waiting:
        return False
    return metrics.kv_cache_usage is None or metrics.kv_cache_usage <= IDLE_KV_SHARE


def wake_stage(identity: str, target: Target) -> StageSpec:
    """One request of one token. Its result says nothing and is not kept."""
    return StageSpec(
        id=identity,
        target=target,
        prompt_tokens=Fixed(value=1),
        output_tokens=Fixed(value=1),
        arrivals=Closed(users=1),
        limits=Limits(min_requests=1, max_requests=1, max_duration_s=WAKE_TIMEOUT_S, request_timeout_s=WAKE_TIMEOUT_S),
        seed=0,
    )
