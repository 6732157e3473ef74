"""What one set of arguments costs replicas on unlike hardware.

A workload has one max_num_seqs. On unlike GPUs it must not be above the weakest replica's knee, or that one queues
tokens while the others do well; the stronger ones then stop short of their own knee. The alternative is a workload
for each product. The cost is the throughput at the knees that is lost:

    1 - sum of X_i(min(K_i, K_weakest)) / sum of X_i(K_i),    X_i(N) = N / (a_i + b_i N)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.passive.levels import StepCurve

SPLIT_FROM = 0.05
"""Lost share of capacity from which on a workload for each product is worth its trouble."""


@dataclass(frozen=True)
class KnownReplica:
    """A replica with a knee that was observed, in requests of the whole replica."""

    pod: str
    gpu_product: str
    knee: float
    curve: StepCurve


@dataclass(frozen=True)
class OneSetting:
    """One set of arguments for all."""

    weakest_product: str
    knee: float
    """Of the weakest product: the median of its replicas."""
    lost_share: float
    """Of the capacity that all replicas have at their own knees."""

    @property
    def advice(self) -> str:
        """For people."""
        fits = f"One set of arguments has to fit {self.weakest_product}, whose knee is at {self.knee:.0f} requests"
        if self.lost_share < SPLIT_FROM:
            return f"{fits}; that costs {self.lost_share:.0%} of the capacity."
        return f"{fits}, and that costs {self.lost_share:.0%} of the capacity: make a workload for each GPU product."


def one_setting(replicas: Sequence[KnownReplica]) -> OneSetting | None:
    """None where the replicas are of one product."""
    by_product: dict[str, list[KnownReplica]] = {}
    for replica in replicas:
        if replica.gpu_product:
            by_product.setdefault(replica.gpu_product, []).append(replica)
    if len(by_product) < 2:
        return None
    knees = {product: float(np.median([r.knee for r in members])) for product, members in by_product.items()}
    weakest = min(knees, key=lambda product: (knees[product], product))
    members = [replica for each in by_product.values() for replica in each]
    own = sum(r.curve.tokens_per_s(r.knee) for r in members)
    together = sum(r.curve.tokens_per_s(min(r.knee, knees[weakest])) for r in members)
    return OneSetting(weakest, knees[weakest], max(0.0, 1 - together / own))
