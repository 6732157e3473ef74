"""What `make bench-scale` says of fleets that were measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scale.verdict import verdict
from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.errors import AlreadyExists, Conflict, ServerTrouble
from tests.integration.patient import PatientKube


def fleet(profiles: int, cores: float, mib: float = 200.0, calls: float = 1.0) -> dict[str, Any]:
    return {
        "profiles": profiles,
        "cpu_cores": cores,
        "rss_mib": mib,
        "idle_calls_per_profile_minute": calls,
    }


def test_ten_times_the_profiles_for_ten_times_the_cores_is_linear():
    said = verdict([fleet(10, 0.02), fleet(100, 0.05), fleet(1000, 0.5)])
    assert said == {
        "cores_within_bar": True,
        "memory_within_bar": True,
        "idle_calls_within_bar": True,
        "cpu_power": 1.0,
        "linear": True,
    }


def test_growth_with_the_square_is_not_linear():
    assert verdict([fleet(100, 0.01), fleet(1000, 1.0)])["linear"] is False


@pytest.mark.parametrize(
    ("last", "bar"),
    [
        (fleet(1000, 1.1), "cores_within_bar"),
        (fleet(1000, 0.5, mib=600), "memory_within_bar"),
        (fleet(1000, 0.5, calls=2.5), "idle_calls_within_bar"),
    ],
)
def test_a_bar_that_is_passed_is_told(last, bar):
    said = verdict([fleet(100, last["cpu_cores"] / 10), last])
    assert [name for name, held in said.items() if held is False] == [bar]


def test_of_one_small_fleet_nothing_is_said_about_growth():
    assert verdict([fleet(10, 0.02)])["linear"] is None
    assert verdict([])["cores_within_bar"] is False


@pytest.mark.parametrize(
    ("method", "path", "answers", "calls"),
    [
        ("GET", "/a/b", [ServerTrouble("x", 0.0), {"found": 1}], ["GET /a/b"] * 2),
        ("POST", "/a", [ServerTrouble("x", 0.0), AlreadyExists("x"), {"found": 1}], ["POST /a"] * 2 + ["GET /a/b"]),
        (
            "PUT",
            "/a/b/status",
            [ServerTrouble("x", 0.0), Conflict("x"), {"found": 1}],
            ["PUT /a/b/status"] * 2 + ["GET /a/b"],
        ),
    ],
)
async def test_a_busy_server_is_asked_again_and_what_it_did_without_answering_counts(
    monkeypatch, method, path, answers, calls
):
    asked: list[str] = []

    async def answer(self: Kube, call: Call) -> Any:
        asked.append(str(call))
        told = answers[len(asked) - 1]
        if isinstance(told, Exception):
            raise told
        return told

    async def at_once(seconds: float) -> None:
        """No test waits."""

    monkeypatch.setattr(Kube, "_object", answer)
    monkeypatch.setattr("asyncio.sleep", at_once)
    kube = PatientKube.__new__(PatientKube)
    assert await kube._object(Call(method, path, body={"metadata": {"name": "b"}})) == {"found": 1}
    assert asked == calls
