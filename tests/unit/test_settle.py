"""Findings in status: shown when seen twice, gone when absent thrice, still otherwise."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kneekeeper.api.findings import FindingPhase, FindingStatus
from kneekeeper.domain.diagnose import Confidence, Diagnosis, Evidence, Finding, Reason, Unit, Unjudged
from kneekeeper.domain.diagnose.settle import settle

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FULL = Finding(
    Reason.KV_PRESSURE, Confidence.HIGH, "Full.", "Lower it.", (Evidence("use", 0.95, Unit.SHARE),), ("more",)
)


def look(before: list[FindingStatus], *findings: Finding, pod: str = "a", blind: bool = False) -> list[FindingStatus]:
    unjudged = (Unjudged(Reason.KV_PRESSURE, ("kv_cache_usage_perc",)),) if blind else ()
    return settle(before, {pod: Diagnosis(findings, unjudged=unjudged)}, NOW + timedelta(minutes=len(before)))


def test_a_finding_is_suspected_first_and_present_when_seen_again():
    once = look([], FULL)
    assert [f.phase for f in once] == [FindingPhase.SUSPECTED]
    assert [f.phase for f in look(once, FULL)] == [FindingPhase.PRESENT]
    assert look(once) == []


def test_a_present_finding_goes_after_three_looks_without_it():
    present = look(look([], FULL), FULL)
    first = look(present)
    second = look(first)
    assert [f.phase for f in (*first, *second)] == [FindingPhase.CLEARING] * 2
    assert look(second) == []
    assert look(second, FULL)[0].phase is FindingPhase.PRESENT


def test_a_present_finding_that_stays_the_same_is_not_written_again():
    present = look(look([], FULL), FULL)
    near = replace(FULL, message="Fuller.", evidence=(Evidence("use", 0.97, Unit.SHARE),))
    assert look(present, near) == present
    far = replace(FULL, message="Half.", evidence=(Evidence("use", 0.5, Unit.SHARE),))
    assert look(present, far)[0].message == "Half."


def test_what_cannot_be_judged_neither_comes_nor_goes():
    present = look(look([], FULL), FULL)
    assert look(present, blind=True) == present
    assert settle(present, {}, NOW) == present


def test_one_entry_tells_of_all_pods():
    both = settle([], {"a": Diagnosis((FULL,)), "b": Diagnosis((FULL,))}, NOW)
    assert [(f.pod, f.pods) for f in both] == [("a", 2)]


def test_what_harms_most_stands_first():
    little = replace(FULL, reason=Reason.TOO_LITTLE_LOAD)
    assert [f.reason for f in look([], little, FULL)] == ["KVPressure", "TooLittleLoad"]
