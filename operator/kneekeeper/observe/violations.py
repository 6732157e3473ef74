"""The share of requests beyond their SLO, as far as histograms with fixed bounds can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kneekeeper.api.stage import Slo
from kneekeeper.domain.observation import ViolationShare
from kneekeeper.observe.engine_metrics import E2E, ENDED, TPOT, TTFT, Buckets, MetricsMissing

_FAILED = ("error",)
"""Of vLLM's finished reasons. `abort` is a client that went away; what the API server turns down has no reason."""


def targets_of(slo: Slo) -> dict[str, float]:
    """The histogram in which each target is judged, with the target in seconds."""
    targets = {TTFT: slo.ttft_s, TPOT: slo.tpot_s, E2E: slo.e2e_s}
    return {family: target for family, target in targets.items() if target is not None}


def is_judged(slo: Slo) -> bool:
    """Whether production can violate it."""
    return bool(targets_of(slo)) or slo.availability is not None


@dataclass(frozen=True)
class Ended:
    """Requests that ended, and those of them that failed."""

    all: float
    failed: float


def ended(by_reason: Iterable[tuple[str, float]]) -> Ended:
    """From the counts of `request_success` by finished reason."""
    counts = list(by_reason)
    return Ended(math.fsum(n for _, n in counts), math.fsum(n for reason, n in counts if reason in _FAILED))


def violation_share(
    slo: Slo, histograms: Mapping[str, Buckets], window_s: float = 0.0, ended: Ended | None = None
) -> ViolationShare:
    """The share that missed any target, from the requests counted in `histograms` by family, and, where an
    availability is promised, that failed, from those that `ended`.

    A target between two bounds leaves an interval: at least what lies beyond the next higher bound missed
    it, at most what lies beyond the next lower one. Histograms do not tell which requests missed two
    targets, so the joint share lies between the largest and the sum of the single ones (Fréchet).
    `window_s` is how long they were counted for, 0 where that is not known.
    Raises MetricsMissing when a needed histogram is absent, ValueError when the SLO has no target.
    """
    targets = targets_of(slo)
    if not is_judged(slo):
        raise ValueError("the SLO has no target, so nothing can violate it")
    missing = [family for family in targets if family not in histograms]
    if slo.availability is not None and ended is None:
        missing.append(ENDED)
    if missing:
        raise MetricsMissing(missing)
    shares = [_beyond(histograms[family], target) for family, target in targets.items()]
    counts = [round(histograms[family].get(math.inf, 0.0)) for family in targets]
    if slo.availability is not None and ended is not None:
        failed = _share(ended.failed, ended.all) if ended.all > 0 else 0.0
        shares.append((failed, failed if ended.all > 0 else 1.0))
        counts.append(round(ended.all))
    return ViolationShare(
        lower=max(lower for lower, _ in shares),
        upper=min(1.0, math.fsum(upper for _, upper in shares)),
        requests=min(counts),
        window_s=window_s,
    )


def _beyond(histogram: Buckets, target_s: float) -> tuple[float, float]:
    count = histogram.get(math.inf, 0.0)
    if count <= 0:
        return 0.0, 1.0
    below = [bound for bound in histogram if bound <= target_s]
    above = [bound for bound in histogram if bound >= target_s]
    surely_within = histogram[max(below)] if below else 0.0
    perhaps_within = histogram[min(above)]
    return _share(count - perhaps_within, count), _share(count - surely_within, count)


def _share(part: float, whole: float) -> float:
    # Extrapolated counts need not be monotone.
    return min(1.0, max(0.0, part / whole))
