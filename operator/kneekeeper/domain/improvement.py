"""By how much a choice promises more than the present setting could, from one stage of the present setting.

A promise is the offered rate of a certification over a constant (`certify.SAFETY`), so the ratio of two promises is
that of the rates. The present setting is offered what the choice has carried, less the improvement that is asked for:

- it breaks the SLO there: it could not promise that much, and the ratio is at least the one that was asked for.
  Where its backlog grew, it cannot promise more than what it completed either, and that may be far less.
- it holds the SLO there: what it could promise is at least that rate, and no improvement is shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kneekeeper.api.tuning_run import StageSummary, TuningRunStatus, Verdict
from kneekeeper.domain.certify import SAFETY

_Z95 = 1.6448536269514722  # 95th percentile of the standard normal

MOST_PERCENT = 1_000_000
"""As much as a recommendation holds."""


@dataclass(frozen=True)
class Improvement:
    """What the present setting's stage shows."""

    present_breaks_slo: bool
    percent: int | None
    """Lower bound of promised(choice) / promised(present) - 1, in percent; None where none is shown."""
    present_promised: float | None
    """What the present setting can promise at least, requests/s; None where it was not shown to hold the SLO."""


def shown_improvement(proven_rate: float, present_rate: float, stage: StageSummary, asked_percent: int) -> Improvement:
    """From the rate that the choice was certified at, and a stage of the present setting at `present_rate`."""
    if stage.verdict is Verdict.FAIL:
        return Improvement(True, max(asked_percent, _beyond_throughput(proven_rate, stage)), None)
    if stage.verdict is Verdict.PASS:
        return Improvement(False, None, present_rate / SAFETY)
    return Improvement(False, None, None)


def with_improvement(status: TuningRunStatus, shown: Improvement) -> TuningRunStatus:
    """The status that tells it."""
    return status.with_changes(
        present_breaks_slo=shown.present_breaks_slo,
        improvement_percent=shown.percent,
        present_promised_requests_per_second=shown.present_promised,
    )


def _beyond_throughput(proven_rate: float, stage: StageSummary) -> int:
    """The 95% lower bound from what a saturated engine completed; 0 where it was not saturated.

    Completions of a saturated engine vary less than those of a Poisson process, whose relative error is 1/sqrt(n).
    """
    completed = stage.requests - stage.failed
    if not stage.saturated or completed <= 0 or stage.requests_per_second <= 0:
        return 0
    throughput = stage.requests_per_second * (1 + _Z95 / math.sqrt(completed))
    return min(MOST_PERCENT, max(0, math.floor(100 * (proven_rate / throughput - 1))))
