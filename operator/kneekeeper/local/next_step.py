"""What to type next where a level of a probe could not be told, in the flags of `kneekeeper probe`."""

from __future__ import annotations

import math

from kneekeeper.api.quantities import format_duration
from kneekeeper.api.stage import Limits, StageState
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import LONGEST_FORECAST
from kneekeeper.domain.load_level import LoadLevel
from kneekeeper.domain.stage_orders import MOST_REQUESTS

ROOM_TO_PASS = 1.5
"""Of the fewest requests that can tell: warm-up is cut, and a miss takes more of them."""

_DIGITS = 2
_MINUTE_S = 60


def next_step(level: LoadLevel, limits: Limits) -> str:
    """A sentence with the flags that let an Inconclusive level be told, or a saturated one hold; empty for others."""
    if level.state is StageState.SATURATED:
        return "Give a lower --rate."
    if level.verdict is not Verdict.INCONCLUSIVE or level.state is StageState.FAILED:
        return ""
    if level.state is StageState.CANCELLED:
        return "Let it run to its end."
    less = "" if level.users is not None else ", or try a lower --rate"
    if level.requests_to_decide >= LONGEST_FORECAST:
        return f"Give other targets in --slo{less}."
    sent = level.warmup_requests + level.requests
    wanted = _rounded_up(ROOM_TO_PASS * (sent + level.requests_to_decide))
    flags = []
    if wanted > limits.max_requests:
        flags.append(f"--requests {min(wanted, MOST_REQUESTS)}")
    # As fast as they were sent; where none was, nothing but twice the time can be said.
    wanted_s = level.duration_s * wanted / sent if sent else 2 * limits.max_duration_s
    if wanted_s > limits.max_duration_s:
        flags.append(f"--duration {_written(wanted_s)}")
    return f"Give {' '.join(flags)}{less}." if flags else f"Measure again{less}."


def _rounded_up(number: float) -> int:
    """To two digits: more would look as if it were known."""
    step: int = 10 ** max(0, math.floor(math.log10(number)) + 1 - _DIGITS)
    return step * math.ceil(number / step)


def _written(seconds: float) -> str:
    """Whole minutes from the first one on."""
    return format_duration(_MINUTE_S * math.ceil(seconds / _MINUTE_S) if seconds > _MINUTE_S else math.ceil(seconds))
