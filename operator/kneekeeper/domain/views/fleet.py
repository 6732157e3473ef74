"""One row for each profile: what was promised, what is in force, how far it is from its capacity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kneekeeper.api.model import Condition, Setting
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.workload import SloTargets
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.units import milliseconds, rounded

BELOW_THE_KNEE = "BelowTheKnee"
"""The reason of Ready where all is well."""


@dataclass(frozen=True)
class Limits:
    """A setting; None where vLLM's default holds."""

    max_num_seqs: int | None
    max_num_batched_tokens: int | None

    @classmethod
    def of(cls, setting: Setting) -> Limits:
        return cls(setting.max_num_seqs, setting.max_num_batched_tokens)


@dataclass(frozen=True)
class Targets:
    """The SLO; None where it sets none."""

    p99_ttft_ms: float | None
    p99_tpot_ms: float | None
    p99_e2e_ms: float | None
    availability_percent: int | None = None


def targets_of(slo: SloTargets) -> Targets:
    """As it is declared."""
    p99s = (milliseconds(slo.p99_ttft), milliseconds(slo.p99_tpot), milliseconds(slo.p99_e2e))
    return Targets(*p99s, slo.availability_percent)


@dataclass(frozen=True)
class Knee:
    """Concurrent requests of one replica, with the 90% interval."""

    concurrency: float
    lower: float
    upper: float


@dataclass(frozen=True)
class FleetRow:
    """A profile at a glance. Rates are of one replica, in requests/s."""

    namespace: str
    name: str
    target: str
    model: str
    gpu_product: str
    slo: Targets
    mode: str
    suspended: bool
    ready: str
    """Status of the condition Ready: True, False, Unknown, or empty before the first look."""
    reason: str
    message: str
    stage: str
    replicas: int | None
    in_force: Limits | None
    recommended: Limits | None
    bound_by: str | None
    knee: Knee | None
    capacity_requests_per_second: float | None
    """The certified rate: of the recommendation, else of the setting that the replicas run."""
    headroom_percent: int | None
    """Of the replica that has least."""
    active_run: str | None


@dataclass(frozen=True)
class Summary:
    """How many profiles there are, and how many of them stand how."""

    profiles: int
    below_their_knee: int
    being_measured: int
    need_attention: int
    above_capacity: int


def summary(rows: list[FleetRow]) -> Summary:
    """Counts; a profile that is measured or suspended needs no attention for not being ready."""
    return Summary(
        profiles=len(rows),
        below_their_knee=sum(row.reason == BELOW_THE_KNEE for row in rows),
        being_measured=sum(row.active_run is not None for row in rows),
        need_attention=sum(row.ready == "False" and row.active_run is None and not row.suspended for row in rows),
        above_capacity=sum(row.headroom_percent is not None and row.headroom_percent < 0 for row in rows),
    )


def fleet(profiles: Iterable[ServingProfile]) -> list[FleetRow]:
    """All rows, in the order of the profiles."""
    return [row_of(profile) for profile in profiles]


def row_of(profile: ServingProfile) -> FleetRow:
    """The row of one profile."""
    spec, status = profile.spec, profile.status
    key = Key.of(profile.metadata)
    ready: Condition | None = find(status.conditions, ConditionType.READY)
    engine, recommendation = status.engine, status.recommendation
    headrooms = [replica.headroom_percent for replica in status.replicas if replica.headroom_percent is not None]
    return FleetRow(
        namespace=key.namespace,
        name=key.name,
        target=f"{spec.target_ref.kind}/{spec.target_ref.name}",
        model=engine.model if engine else "",
        gpu_product=engine.gpu_product if engine else "",
        slo=targets_of(spec.slo),
        mode=spec.update_policy.mode.value,
        suspended=spec.suspend,
        ready=ready.status.value if ready else "",
        reason=ready.reason if ready else "",
        message=ready.message if ready else "",
        stage=status.stage,
        replicas=engine.replicas if engine else None,
        in_force=Limits(engine.max_num_seqs, engine.max_num_batched_tokens) if engine else None,
        recommended=Limits.of(recommendation.setting) if recommendation else None,
        bound_by=recommendation.bound_by.value if recommendation else None,
        knee=knee_of(profile),
        capacity_requests_per_second=_capacity(profile),
        headroom_percent=min(headrooms, default=None),
        active_run=status.active_run,
    )


def _capacity(profile: ServingProfile) -> float | None:
    recommendation = profile.status.recommendation
    if recommendation is not None and recommendation.is_certified:
        return rounded(recommendation.promised_requests_per_second)
    known = [each.capacity_requests_per_second for each in profile.status.replicas]
    return rounded(min((rate for rate in known if rate is not None), default=None))


def knee_of(profile: ServingProfile) -> Knee | None:
    """The knee of the last run that found one."""
    knee = profile.status.knee
    return None if knee is None else Knee(knee.concurrency, knee.lower, knee.upper)
