"""A profile as it is shown: its row, every condition, each replica against its knee, history and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kneekeeper.api.findings import FindingStatus
from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.api.profile_status import Recommendation
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun, Verdict
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.domain.views.fleet import FleetRow, Limits, Targets, row_of, targets_of
from kneekeeper.domain.views.production import ReplicaView, ScaleView, TrafficView, production_view
from kneekeeper.domain.views.run import RunView, run_view
from kneekeeper.domain.views.units import iso, milliseconds, rounded

_GOOD_WHEN_FALSE = {ConditionType.DRIFTED.value, ConditionType.DEGRADED.value}
_TELLS_OF_PROGRESS = {ConditionType.PROBING.value, ConditionType.RECOMMENDED.value, ConditionType.APPLIED.value}
"""Nobody has to act when these are not met: a run or a person's approval will meet them."""


class Level(StrEnum):
    """How much a condition asks for attention."""

    FINE = "fine"
    NOTICE = "notice"
    PROBLEM = "problem"


@dataclass(frozen=True)
class ConditionView:
    """One condition; its message has the next step."""

    type: str
    status: str
    reason: str
    message: str
    since: str | None
    level: Level


@dataclass(frozen=True)
class EvidenceView:
    """A number that a finding rests on."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class FindingView:
    """What is wrong with the workload, and what to do."""

    reason: str
    phase: str
    confidence: str
    pod: str
    pods: int
    message: str
    next_step: str
    evidence: tuple[EvidenceView, ...]
    since: str | None


@dataclass(frozen=True)
class RecommendationView:
    """A certified or predicted setting and the patch that brings it into force."""

    limits: Limits
    hash: str
    run: str
    sustainable_requests_per_second: float | None
    promised_requests_per_second: float | None
    promised_output_tokens_per_second: float | None
    """Of objective Throughput alone."""
    bound_by: str
    confidence: str
    p99_ttft_ms: float | None
    p99_tpot_ms: float | None
    p99_e2e_ms: float | None
    improvement: str
    patch: str


@dataclass(frozen=True)
class ChangeView:
    """A setting that was applied or rolled back."""

    limits: Limits
    at: str | None
    what: str


@dataclass(frozen=True)
class HistoryEntry:
    """A past or present run; `kept` where its object can be opened."""

    name: str
    trigger: str
    outcome: str
    cause: str
    started_at: str | None
    finished_at: str | None
    kept: bool
    limits: Limits | None
    promised_requests_per_second: float | None
    knee_concurrency: float | None
    image: str


@dataclass(frozen=True)
class EventNote:
    """An Event about a profile or one of its runs."""

    at: str
    """RFC 3339."""
    type: str
    reason: str
    note: str
    about: str
    """Kind and name."""


@dataclass(frozen=True)
class ProfileView:
    """All of it. `run` is the one that was asked for, else the newest that has stages."""

    row: FleetRow
    image: str
    conditions: tuple[ConditionView, ...]
    findings: tuple[FindingView, ...]
    recommendation: RecommendationView | None
    certified_for: Targets | None
    """The targets of before, for which the limits in force were certified; None where that is not so."""
    rollout_step: str | None
    changes: tuple[ChangeView, ...]
    replicas: tuple[ReplicaView, ...]
    scale: ScaleView | None
    traffic: TrafficView | None
    history: tuple[HistoryEntry, ...]
    events: tuple[EventNote, ...]
    run: RunView | None


def profile_view(
    profile: ServingProfile, runs: Sequence[TuningRun], events: Sequence[EventNote], run_name: str | None = None
) -> ProfileView | None:
    """`runs` are the profile's, oldest first. None where there is no run `run_name` among them."""
    measured = [run for run in runs if run.status.stages or run.status.current_stage]
    if run_name is None:
        shown = measured[-1] if measured else runs[-1] if runs else None
    else:
        shown = next((run for run in runs if run.metadata["name"] == run_name), None)
        if shown is None:
            return None
    status, production = profile.status, production_view(profile)
    return ProfileView(
        row=row_of(profile),
        image=status.engine.image if status.engine else "",
        conditions=tuple(condition_view(each, measuring=status.active_run is not None) for each in status.conditions),
        findings=tuple(finding_view(finding) for finding in status.findings),
        recommendation=_recommendation(status.recommendation) if status.recommendation else None,
        certified_for=_certified_for(profile, runs),
        rollout_step=status.rollout.step.value if status.rollout else None,
        changes=_changes(profile),
        replicas=production.replicas,
        scale=production.scale,
        traffic=production.traffic,
        history=_history(profile, runs),
        events=tuple(events),
        run=run_view(shown) if shown else None,
    )


def _certified_for(profile: ServingProfile, runs: Sequence[TuningRun]) -> Targets | None:
    """Of the newest run that certified the limits in force, where the profile has asked for others since."""
    engine = profile.status.engine
    if engine is None:
        return None
    in_force = Limits(engine.max_num_seqs, engine.max_num_batched_tokens)
    for run in reversed(runs):
        passed = [Limits.of(c.setting) for c in run.status.certifications if c.verdict is Verdict.PASS]
        if run.status.plan is not None and in_force in passed:
            then, now = (
                replace(targets_of(slo), availability_percent=None)
                for slo in (run.status.plan.profile_spec.slo, profile.spec.slo)
            )
            return then if then != now else None
    return None


def condition_view(given: Condition, *, measuring: bool) -> ConditionView:
    """`measuring`: a run is under way."""
    return ConditionView(
        type=given.type,
        status=given.status.value,
        reason=given.reason,
        message=given.message,
        since=iso(given.last_transition_time),
        level=level_of(given, measuring=measuring),
    )


def level_of(condition: Condition, *, measuring: bool) -> Level:
    """While a run is under way, what it will bring is not missed; Ready only sums up the others."""
    good = ConditionStatus.FALSE if condition.type in _GOOD_WHEN_FALSE else ConditionStatus.TRUE
    quiet = {ConditionType.PROBING.value, ConditionType.READY.value}
    if condition.status is good or condition.type in quiet or not condition.message:
        return Level.FINE
    if condition.type in _TELLS_OF_PROGRESS:
        return Level.FINE if measuring else Level.NOTICE
    return Level.NOTICE if condition.status is ConditionStatus.UNKNOWN else Level.PROBLEM


def finding_view(given: FindingStatus) -> FindingView:
    """With its numbers and their units."""
    return FindingView(
        reason=given.reason,
        phase=given.phase.value,
        confidence=given.confidence,
        pod=given.pod,
        pods=given.pods,
        message=given.message,
        next_step=given.next_step,
        evidence=tuple(EvidenceView(each.name, each.value, each.unit) for each in given.evidence),
        since=iso(given.since),
    )


def _recommendation(given: Recommendation) -> RecommendationView:
    return RecommendationView(
        limits=Limits.of(given.setting),
        hash=given.hash,
        run=given.run,
        sustainable_requests_per_second=rounded(given.sustainable_requests_per_second),
        promised_requests_per_second=rounded(given.promised_requests_per_second),
        promised_output_tokens_per_second=rounded(given.promised_output_tokens_per_second),
        bound_by=given.bound_by.value,
        confidence=given.confidence.value,
        p99_ttft_ms=milliseconds(given.p99_ttft),
        p99_tpot_ms=milliseconds(given.p99_tpot),
        p99_e2e_ms=milliseconds(given.p99_e2e),
        improvement=given.improvement,
        patch=given.patch,
    )


def _changes(profile: ServingProfile) -> tuple[ChangeView, ...]:
    status = profile.status
    changes = [
        ChangeView(Limits.of(each.setting), iso(each.at), f"rolled back: {each.cause}") for each in status.rejected
    ]
    if status.applied is not None:
        what = "applied and verified" if status.applied.verified else "applied; verification stayed undecided"
        changes.append(ChangeView(Limits.of(status.applied.setting), iso(status.applied.at), what))
    return tuple(sorted(changes, key=lambda change: change.at or ""))


def _history(profile: ServingProfile, runs: Sequence[TuningRun]) -> tuple[HistoryEntry, ...]:
    kept = {run.metadata["name"]: run.status for run in runs}
    entries = []
    for reference in profile.status.runs:
        status = kept.get(reference.name)
        proven = status.certifications[-1] if status is not None and status.certifications else None
        fit = status.fit if status is not None else None
        entries.append(
            HistoryEntry(
                name=reference.name,
                trigger=reference.trigger,
                outcome=reference.outcome,
                cause=reference.cause,
                started_at=iso(reference.started_at),
                finished_at=iso(reference.finished_at),
                kept=status is not None,
                limits=Limits.of(proven.setting) if proven else None,
                promised_requests_per_second=rounded(proven.promised_requests_per_second) if proven else None,
                knee_concurrency=rounded(fit.knee.concurrency) if fit and fit.knee else None,
                image=status.plan.image if status is not None and status.plan else "",
            )
        )
    return tuple(entries)
