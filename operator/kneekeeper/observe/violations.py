"""The share of requests beyond their SLO, as far as histograms with fixed bounds can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kneekeeper.api.stage import Slo
from kneekeeper.domain.observation import ViolationShare
from kneekeeper.observe.engine_metrics import E2E, TPOT, TTFT, Buckets, MetricsMissing


def targets_of(slo: Slo) -> dict[str, float]:
    """The histogram in which each target is judged, with the target in seconds."""
    targets = {TTFT: slo.ttft_s, TPOT: slo.tpot_s, E2E: slo.e2e_s}
    return {family: target for family, target in targets.items() if target is not None}


def violation_share(slo: Slo, histograms: Mapping[str, Buckets], window_s: float = 0.0) -> ViolationShare:
    """The share that missed any target, from the requests counted in `histograms` by family.

    A target between two bounds leaves an interval: at least what lies beyond the next higher bound missed
    it, at most what lies beyond the next lower one. Histograms do not tell which requests missed two
    targets, so the joint share lies between the largest and the sum of the single ones (Fréchet).
    `window_s` is how long they were counted for, 0 where that is not known.
    Raises MetricsMissing when a needed histogram is absent, ValueError when the SLO has no target.
    """
    targets = targets_of(slo)
    if not targets:
        raise ValueError("the SLO has no target, so nothing can violate it")
    missing = [family for family in targets if family not in histograms]
    if missing:
        raise MetricsMissing(missing)
    shares = [_beyond(histograms[family], target) for family, target in targets.items()]
    return ViolationShare(
        lower=max(lower for lower, _ in shares),
        upper=min(1.0, math.fsum(upper for _, upper in shares)),
        requests=min(round(histograms[family].get(math.inf, 0.0)) for family in targets),
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
