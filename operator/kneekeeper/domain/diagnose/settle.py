"""Findings as status shows them: of all replicas, bounded in number, and without flapping.

A finding is shown once it was made in two looks in a row and goes after three looks without it. Between, text and
numbers stay as they are unless a number moved by more than a quarter, so that a quiet profile is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kneekeeper.api.findings import FindingPhase, FindingStatus, FindingValue
from kneekeeper.domain.diagnose.diagnose import RULES
from kneekeeper.domain.diagnose.finding import Diagnosis, Finding

LOOKS_TO_SHOW = 2
LOOKS_TO_CLEAR = 3
MOST_FINDINGS = 16
_MOVED = 0.25
_ORDER = {str(reason): place for place, reason in enumerate(RULES)}


def settle(before: Sequence[FindingStatus], diagnoses: Mapping[str, Diagnosis], now: datetime) -> list[FindingStatus]:
    """The next list, from the last one and what each pod's diagnosis says now; unchanged where no pod was judged.

    A finding that could not be judged in this look is neither made nor gone.
    """
    if not diagnoses:
        return list(before)
    made: dict[str, list[tuple[str, Finding]]] = {}
    for pod, diagnosis in sorted(diagnoses.items()):
        for finding in diagnosis.findings:
            made.setdefault(str(finding.reason), []).append((pod, finding))
    blind = {str(unjudged.reason) for diagnosis in diagnoses.values() for unjudged in diagnosis.unjudged}
    known = {finding.reason: finding for finding in before}
    settled: list[FindingStatus] = []
    for reason in sorted(known.keys() | made.keys(), key=lambda reason: _ORDER.get(reason, len(_ORDER))):
        old = known.get(reason)
        if reason in made:
            settled.append(_seen(old, made[reason], now))
        elif old is not None and reason in blind:
            settled.append(old)
        elif old is not None:
            settled.extend(_unseen(old))
    return settled[:MOST_FINDINGS]


def _seen(old: FindingStatus | None, pods: list[tuple[str, Finding]], now: datetime) -> FindingStatus:
    pod, finding = pods[0]
    looks = 1
    if old is not None:
        pod, finding = next(((name, f) for name, f in pods if name == old.pod), pods[0])
        looks = old.looks + 1 if old.phase is FindingPhase.SUSPECTED else LOOKS_TO_SHOW
    phase = FindingPhase.PRESENT if looks >= LOOKS_TO_SHOW else FindingPhase.SUSPECTED
    fresh = FindingStatus(
        reason=str(finding.reason),
        phase=phase,
        looks=looks,
        pod=pod,
        pods=len(pods),
        confidence=str(finding.confidence),
        message=finding.message[:1024],
        next_step=finding.next_step[:512],
        evidence=[FindingValue(name=e.name[:64], value=e.value, unit=str(e.unit)) for e in finding.evidence[:8]],
        missing=[name[:128] for name in finding.missing[:8]],
        since=old.since if old is not None else now,
    )
    if old is None or _moved(old, fresh):
        return fresh
    return old.model_copy(update={"phase": fresh.phase, "looks": fresh.looks, "pods": fresh.pods})


def _unseen(old: FindingStatus) -> list[FindingStatus]:
    """Nothing where it was only suspected, or stayed away for long enough."""
    if old.phase is FindingPhase.SUSPECTED:
        return []
    looks = 1 if old.phase is FindingPhase.PRESENT else old.looks + 1
    if looks >= LOOKS_TO_CLEAR:
        return []
    return [old.model_copy(update={"phase": FindingPhase.CLEARING, "looks": looks})]


def _moved(old: FindingStatus, fresh: FindingStatus) -> bool:
    if (old.pod, old.confidence, old.missing) != (fresh.pod, fresh.confidence, fresh.missing):
        return True
    if [value.name for value in old.evidence] != [value.name for value in fresh.evidence]:
        return True
    pairs = zip(old.evidence, fresh.evidence, strict=True)
    return any(abs(a.value - b.value) > _MOVED * max(abs(a.value), abs(b.value)) for a, b in pairs)
