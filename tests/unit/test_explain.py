"""`kneekeeper explain`: an engine at a URL, and what a profile's status holds."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from kneekeeper.api.findings import FindingPhase, FindingStatus, FindingValue
from kneekeeper.api.model import Condition, ConditionStatus
from kneekeeper.cli.main import main
from kneekeeper.cli.show.explanation import Explanation, explanation
from kneekeeper.domain.diagnose import Boundary, Diagnosis, EngineSettings
from kneekeeper.domain.diagnose.status_text import finding_lines
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.local.explaining import READINGS, WatchRequest, explain_engine
from kneekeeper.local.served import BaseUrl, ServerAbsent, ServerError
from tests.unit.cli import recorded

NO = ConditionStatus.FALSE
GOLDEN = (Path(__file__).parents[1] / "contract" / "golden" / "vllm-0.32-metrics.txt").read_text()
REQUEST = WatchRequest(BaseUrl("http://127.0.0.1:1", {}), EngineSettings(256, 2048), None, 120.0)
FULL = FindingStatus(
    reason="KVPressure",
    phase=FindingPhase.PRESENT,
    looks=2,
    pod="chat-a",
    pods=3,
    confidence="High",
    message="The cache is full.",
    next_step="Lower it.",
    evidence=[FindingValue(name="KV cache in use", value=0.953, unit="share")],
    missing=["num_preemptions_total"],
    since=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
)


async def explained(answer: httpx.Response | None) -> tuple[list[float], Diagnosis]:
    slept: list[float] = []

    def respond(_: httpx.Request) -> httpx.Response:
        if answer is None:
            raise httpx.ConnectError("refused")
        return answer

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    ticks = itertools.count()
    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        return slept, await explain_engine(http, REQUEST, sleep, lambda: 10.0 * next(ticks))


async def test_an_idle_engine_at_a_url_is_below_what_can_be_judged():
    slept, diagnosis = await explained(httpx.Response(200, text=GOLDEN))
    assert [boundary.boundary for boundary in diagnosis.not_applicable] == [Boundary.LOW_RATE]
    assert slept == [120.0 / (READINGS - 1)] * (READINGS - 1)


async def test_a_server_without_vllms_metrics_is_told():
    with pytest.raises(ServerError, match="--disable-log-stats"):
        await explained(httpx.Response(200, text="python_gc 1\n"))
    with pytest.raises(ServerAbsent, match="check --url"):
        await explained(None)


def test_status_is_told_with_pod_time_evidence_and_next_step():
    assert list(finding_lines([FULL])) == [
        "KVPressure (confidence high), pod chat-a and 2 more, since 2026-03-01 12:30 UTC",
        "  The cache is full.",
        "  Next: Lower it.",
        "  Evidence: KV cache in use 95.3%",
        "  Would be surer with: num_preemptions_total",
    ]


def test_a_unit_of_a_later_version_is_shown_as_it_is():
    later = FULL.evidence[0].with_changes(unit="parsecs", value=3.0)
    assert f"{later.name} 3 parsecs" in "\n".join(finding_lines([FULL.with_changes(evidence=[later])]))


def told_of(conditions: list[Condition], **status: Any) -> Explanation:
    profile = recorded.profile()
    return explanation(profile.with_changes(status=profile.status.with_changes(conditions=conditions, **status)))


def condition(type_: ConditionType, reason: str, message: str, status: ConditionStatus = NO) -> Condition:
    since = datetime(2026, 3, 1, tzinfo=UTC)
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=since)


def test_a_suspicion_is_not_told_and_findings_are_wrong():
    suspected = FULL.model_copy(update={"phase": FindingPhase.SUSPECTED})
    quiet = told_of([], findings=[suspected])
    assert (quiet.text, quiet.wrong, quiet.data.findings) == ("Nothing is wrong, as far as is known.", False, ())
    found = told_of([], findings=[FULL])
    assert found.text.startswith("KVPressure")
    assert found.wrong
    (told,) = found.data.findings
    assert (told.reason, told.next_step, told.evidence[0].name) == ("KVPressure", "Lower it.", "KV cache in use")


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (ConditionType.ACCEPTED, "TargetTaken"),
        (ConditionType.TARGET_FOUND, "TargetNotFound"),
        (ConditionType.RECOMMENDED, "ImpossibleSLO"),
    ],
)
def test_a_profile_that_is_not_ready_is_told_once_with_its_reason_and_message(type_: ConditionType, reason: str):
    ready = condition(ConditionType.READY, reason, "It cannot be.")
    told = told_of([condition(type_, reason, "It cannot be."), ready])
    assert told.wrong
    assert told.text.splitlines() == [
        f"{type_} is False: {reason}",
        "  It cannot be.",
        "All of it: kneekeeper status chat -n prod",
    ]
    assert told.data.wrong
    assert [(each.type, each.reason) for each in told.data.conditions] == [(type_, reason)]


def test_ready_speaks_for_itself_where_no_other_condition_has_its_reason():
    told = told_of([condition(ConditionType.READY, "Waiting", "Something else.")])
    assert told.wrong
    assert told.text.splitlines()[:2] == ["Ready is False: Waiting", "  Something else."]


def test_a_run_under_way_is_told_and_what_it_will_tell_is_not_missed():
    conditions = [
        condition(ConditionType.PROBING, "Probing", "Ramp stage 3 of 9.", ConditionStatus.TRUE),
        condition(ConditionType.RECOMMENDED, "Measuring", "A run is under way.", ConditionStatus.UNKNOWN),
        condition(ConditionType.READY, "Probing", "The engine is being measured."),
    ]
    told = told_of(conditions, active_run="chat-1", stage="Ramp/3")
    assert told.text.splitlines() == [
        "Nothing is wrong, as far as is known.",
        "TuningRun chat-1 is under way, at Ramp/3",
        "  Ramp stage 3 of 9.",
    ]
    assert not told.wrong
    assert (told.data.active_run, told.data.stage, told.data.conditions) == ("chat-1", "Ramp/3", ())


def test_a_run_that_is_held_back_says_for_what():
    told = told_of([condition(ConditionType.PROBING, "NoSpareGPU", "No node has a free GPU.")])
    assert told.text.splitlines()[:2] == ["Probing is False: NoSpareGPU", "  No node has a free GPU."]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a ServingProfile"),
        (["chat", "-A"], "with -A"),
        (["chat", "--url", "http://127.0.0.1:1"], "name a ServingProfile"),
        (["-o", "wide", "--url", "http://127.0.0.1:1"], "-o wide"),
        (["--url", "http://127.0.0.1:1"], "--max-num-seqs"),
    ],
)
def test_wrong_usage_names_what_is_missing(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", *words]) == 2
    assert told in capsys.readouterr().err
