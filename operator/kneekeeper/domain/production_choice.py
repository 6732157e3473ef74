"""A setting from production's metrics alone: the law of the weakest replica, and what the twin makes of it.

Nothing is sent and nothing is proven. What is chosen lies inside what production has shown: no more sequences than the
upper end of its own knee, which is only told where traffic came near it, and no larger budget than it ran with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.stage import Slo
from kneekeeper.domain.candidates import Limit, pairs_within
from kneekeeper.domain.choose import REQUESTS, RUNS, Chosen, choose_on, why_no_rate
from kneekeeper.domain.passive import passive_knee
from kneekeeper.domain.production_law import fit_production
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.stats import Interval
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

FEWEST_WINDOWS = 12
WORST_MISFIT = 2.0
"""Times its own errors: a law that explains production no better is not one to choose by."""


class Lack(StrEnum):
    """What production lacks for a choice; each is a condition's reason."""

    METRICS_MISSING = "MetricsMissing"
    NOT_OBSERVED = "NotObserved"


@dataclass(frozen=True)
class NotEnough:
    """Why production's metrics do not carry a choice, with the next step."""

    reason: Lack
    message: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """What production tells of its weakest replica."""

    pod: str
    law: LawFit
    knee: Interval
    """In concurrent requests."""
    kv_cache_tokens: int
    windows: int
    replicas: int
    """Whose knee is known."""


@dataclass(frozen=True)
class Prediction:
    """The choice, and what the present setting is predicted to carry at most, in requests/s; 0 for nothing."""

    chosen: Chosen
    present_per_s: float


def evidence_of(records: Sequence[EngineRecord]) -> Evidence | NotEnough:
    """The law of the replica with the lowest knee: one setting has to fit it as well. Takes a second."""
    if not records:
        return NotEnough(
            Lack.METRICS_MISSING,
            "Prometheus has no inter_token_latency_seconds of the serving pods. Check that it scrapes them, and "
            "spec.metrics.",
        )
    pods = [record.history.pod for record in records]
    several = next((pod for pod in pods if pods.count(pod) > 1), None)
    if several is not None:
        return NotEnough(
            Lack.NOT_OBSERVED,
            f"Pod {several} has several data-parallel engines, and how requests are spread over them is not told.",
        )
    complete = [record for record in records if not record.missing]
    if not complete:
        return NotEnough(
            Lack.METRICS_MISSING,
            f"Prometheus has no {', '.join(records[0].missing)} of pod {pods[0]}. Check that it keeps these families.",
        )
    answers = [(record, passive_knee(record.history)) for record in complete]
    known = [(record, answer.knee) for record, answer in answers if answer.knee is not None]
    if not known:
        nearest = max((answer for _, answer in answers), key=lambda answer: answer.seen)
        return NotEnough(Lack.NOT_OBSERVED, f"No replica came near its knee. {nearest.message}")
    weakest, knee = min(known, key=lambda each: each[1].estimate)
    windows = weakest.windows
    law = fit_production(windows) if len(windows) >= FEWEST_WINDOWS else None
    if law is None:
        return NotEnough(
            Lack.NOT_OBSERVED,
            f"Pod {weakest.history.pod} has {len(windows)} windows of which all is known; {FEWEST_WINDOWS} are needed.",
        )
    if law.misfit > WORST_MISFIT:
        return NotEnough(
            Lack.NOT_OBSERVED,
            f"No step law explains pod {weakest.history.pod}: its times lie {law.misfit:.1f} errors off the best one.",
        )
    assert weakest.kv_cache_tokens is not None  # it is not missing
    return Evidence(weakest.history.pod, law, knee, weakest.kv_cache_tokens, len(windows), len(known))


def predict(
    evidence: Evidence,
    traffic: TwinTraffic,
    slos: Sequence[Slo],
    bounds: SettingBounds,
    present: Setting,
    sequence_grid: Sequence[int],
    token_grid: Sequence[int],
) -> Prediction | NotEnough:
    """The setting with the highest predicted rate inside the targets. Deterministic. Takes seconds."""
    lowest, highest = bounds.lowest, bounds.highest
    at_the_knee = Limit(max(1, round(evidence.knee.upper)), BoundBy.KNEE)
    sequences = min(at_the_knee, Limit(highest.max_num_seqs, BoundBy.BOUND), key=lambda limit: limit.value)
    tokens = Limit(min(highest.max_num_batched_tokens, present.max_num_batched_tokens), BoundBy.BOUND)
    allowed = pairs_within(lowest, sequences, tokens, sequence_grid, token_grid)
    if not allowed.settings:
        return NotEnough(
            Lack.NOT_OBSERVED,
            f"No setting between {lowest} and {highest} lies inside what production has shown: at most "
            f"{sequences.value} sequences and {tokens.value} tokens. Widen spec.parameters.",
        )
    laws = (evidence.law.law, *evidence.law.draws[: RUNS - 1])
    surface = Surface.drawn(traffic, slos, laws, REQUESTS)
    best = choose_on(surface, allowed)
    if best is None:
        return NotEnough(
            Lack.NOT_OBSERVED,
            f"{why_no_rate(surface, allowed)} So production's metrics predict; measure it by Clone or BorrowReplica.",
        )
    return Prediction(best, surface.highest_rate(traffic.limits(present)))
