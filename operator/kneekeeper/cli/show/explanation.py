"""What a profile's status says is wrong: its conditions, its findings, and the run that is under way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kneekeeper.api.findings import FindingPhase
from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.domain.diagnose.status_text import finding_lines, wrapped
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.production import ProductionView, production_view
from kneekeeper.domain.views.profile import ConditionView, FindingView, Level, condition_view, finding_view, level_of


@dataclass(frozen=True)
class Explained:
    """The same for programs, with all that production shows. The run is null where none is under way."""

    namespace: str
    name: str
    wrong: bool
    conditions: tuple[ConditionView, ...]
    findings: tuple[FindingView, ...]
    active_run: str | None
    stage: str
    production: ProductionView


@dataclass(frozen=True)
class Explanation:
    """In words. `wrong`: somebody has to act, or to wait for what the text names."""

    text: str
    wrong: bool
    data: Explained


def explanation(profile: ServingProfile) -> Explanation:
    """Of conditions what is missed, of findings what was seen more than once. A profile that is not ready is wrong
    unless a run that is under way will tell."""
    findings = [each for each in profile.status.findings if each.phase is not FindingPhase.SUSPECTED]
    conditions = _missed(profile)
    wrong = bool(findings) or any(_is_wrong(each, profile) for each in conditions)
    lines = [line for each in conditions for line in _condition_lines(each)]
    lines += finding_lines(findings)
    if not lines:
        lines.append("Nothing is wrong, as far as is known.")
    lines += _run_lines(profile)
    key, status = Key.of(profile.metadata), profile.status
    if conditions:
        lines.append(f"All of it: kneekeeper status {key.name} -n {key.namespace}")
    data = Explained(
        namespace=key.namespace,
        name=key.name,
        wrong=wrong,
        conditions=tuple(condition_view(each, measuring=status.active_run is not None) for each in conditions),
        findings=tuple(finding_view(each) for each in findings),
        active_run=status.active_run,
        stage=status.stage,
        production=production_view(profile),
    )
    return Explanation("\n".join(lines), wrong, data)


def _missed(profile: ServingProfile) -> list[Condition]:
    """As `status` tells them, and Ready where none of them is its reason."""
    conditions, measuring = profile.status.conditions, profile.status.active_run is not None
    missed = [each for each in conditions if level_of(each, measuring=measuring) is not Level.FINE]
    held_back = find(conditions, ConditionType.PROBING)
    if not measuring and held_back is not None and held_back.message:
        missed.append(held_back)
    ready = find(conditions, ConditionType.READY)
    if (
        ready is not None
        and ready.status is ConditionStatus.FALSE
        and not measuring
        and ready.reason not in {each.reason for each in missed}
    ):
        missed.insert(0, ready)
    return missed


def _is_wrong(condition: Condition, profile: ServingProfile) -> bool:
    measuring, ready = profile.status.active_run is not None, find(profile.status.conditions, ConditionType.READY)
    if level_of(condition, measuring=measuring) is Level.PROBLEM:
        return True
    return not measuring and ready is not None and ready.status is ConditionStatus.FALSE


def _condition_lines(condition: Condition) -> Iterator[str]:
    yield f"{condition.type} is {condition.status}: {condition.reason}"
    yield from wrapped(condition.message)


def _run_lines(profile: ServingProfile) -> Iterator[str]:
    status = profile.status
    if status.active_run is None:
        return
    told = find(status.conditions, ConditionType.PROBING)
    stage = f", at {status.stage}" if status.stage else ""
    yield f"TuningRun {status.active_run} is under way{stage}"
    if told is not None:
        yield from wrapped(told.message)
