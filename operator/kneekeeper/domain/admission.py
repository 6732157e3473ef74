"""How many sequences an engine runs at a time, whatever its max_num_seqs says.

Hybrid models need a block of state for each sequence, and run no more than there are blocks; the others wait, and
nothing says so but their TTFT. By Little's law (L = X W) the requests of a closed loop that wait for their first token
are the throughput times the TTFT, and the rest are running.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable

_SHOWN = 1.25
"""A limit shows at the first level with more users than it by this factor: levels double, and TTFT is a median."""

_SLACK = 1.05
"""Of the most that ran: an estimate that is too low would cost throughput, one that is too high hardly any."""


def most_running(stages: Sequence[StageSummary]) -> int | None:
    """The most sequences that ran at a time in the ramp; None where the users were too few to show a limit.

    Where prompts take all of the engine's time, fewer run than there are users, too, and more would not run with any
    setting: to take that for a limit changes nothing.
    """
    ramp = [stage for stage in usable(stages, StageKind.RAMP) if stage.users is not None]
    if not ramp:
        return None
    most = max(_running(stage) for stage in ramp)
    users = max(stage.users or 0 for stage in ramp)
    return math.ceil(_SLACK * most) if users > _SHOWN * most > 0 else None


def _running(stage: StageSummary) -> float:
    return stage.mean_concurrency - stage.requests_per_second * (stage.p50_ttft or 0.0)
