"""`kneekeeper explain`: an engine at a URL, and what a profile's status holds."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from kneekeeper.api.findings import FindingPhase, FindingStatus, FindingValue
from kneekeeper.cli.main import main
from kneekeeper.domain.diagnose import Boundary, Diagnosis, EngineSettings
from kneekeeper.domain.diagnose.status_text import explain_status
from kneekeeper.local.explaining import READINGS, WatchRequest, explain_engine
from kneekeeper.local.served import BaseUrl, ServerAbsent, ServerError

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
    assert explain_status([FULL]).splitlines() == [
        "KVPressure (confidence high), pod chat-a and 2 more, since 2026-03-01 12:30 UTC",
        "  The cache is full.",
        "  Next: Lower it.",
        "  Evidence: KV cache in use 95.3%",
        "  Would be surer with: num_preemptions_total",
    ]
    suspected = FULL.model_copy(update={"phase": FindingPhase.SUSPECTED})
    assert explain_status([suspected]) == "Nothing is wrong, as far as is known."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a ServingProfile"),
        (["chat", "--url", "http://127.0.0.1:1"], "name a ServingProfile"),
        (["--url", "http://127.0.0.1:1"], "--max-num-seqs"),
    ],
)
def test_wrong_usage_names_what_is_missing(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", *words]) == 2
    assert told in capsys.readouterr().err
