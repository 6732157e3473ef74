"""Where production metrics come from: one protocol, so that plans do not care."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kneekeeper.api.serving_profile import Scheme
from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import EngineReading, GpuWindow
from kneekeeper.domain.observation import (
    Demand,
    EngineMetrics,
    PodView,
    ProductionHistory,
    Unreachable,
    ViolationShare,
)
from kneekeeper.domain.production_record import EngineRecord


@dataclass(frozen=True)
class ServingPods:
    """The pods whose metrics are asked for, and how their engines are spoken to."""

    namespace: str
    pods: tuple[PodView, ...]
    port: int
    scheme: Scheme = Scheme.HTTP


class MetricsUnreachable(Exception):
    """The source of metrics did not answer; `why` is for people and holds nothing of the answer's body."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url}: {why}; check spec.metrics.prometheusRef, or the operator's default")
        self.url = url
        self.why = why


class MetricsSource(Protocol):
    """Production metrics of serving pods. Implementations bound each call in time."""

    async def engine_metrics(self, serving: ServingPods) -> Mapping[str, EngineMetrics | Unreachable]:
        """The newest numbers by pod name. Raises MetricsUnreachable when no pod can be told of."""

    async def violation_share(self, serving: ServingPods, slo: Slo, window_s: float) -> ViolationShare | None:
        """Over the last `window_s` seconds; None when the source has not watched yet.

        Raises MetricsUnreachable and MetricsMissing.
        """

    async def demand(self, serving: ServingPods) -> Demand | None:
        """The peak over what the source remembers, a day at most; None when it has not watched yet.

        Raises MetricsUnreachable.
        """

    async def readings(self, serving: ServingPods) -> Mapping[str, tuple[EngineReading, ...]]:
        """The last minutes of at most 16 pods by name, oldest first; few or none where little was seen.

        Raises MetricsUnreachable.
        """

    async def gpu_windows(self, serving: ServingPods) -> Mapping[str, GpuWindow]:
        """What DCGM's exporter says of these pods' GPUs in the same minutes; empty where nothing is known.

        Raises MetricsUnreachable.
        """

    async def records(self, serving: ServingPods) -> tuple[EngineRecord, ...] | None:
        """A day of each engine of these pods as a fit of its law needs it; None where the source keeps no history.

        As dear as `history`. Raises MetricsUnreachable.
        """

    async def history(self, serving: ServingPods) -> ProductionHistory | None:
        """What is remembered of the engines and of the traffic; None where the source keeps no history.

        Dear: some twenty queries over days, so it is asked for now and then. Raises MetricsUnreachable.
        """
