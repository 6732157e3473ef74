"""`kneekeeper tune --objective throughput` from its command line to its report, against a simulated engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.engine_process import free_port
from tests.local.processes import Command, engine

pytestmark = pytest.mark.timeout(300)

HARDWARE: dict[str, Any] = {
    "startup_s": 0.1,
    "api_ms_per_request": 0.0,
    "step_time": {"base_ms": 10.0, "per_sequence_ms": 1.0, "per_prefill_token_ms": 0.01, "noise": 0.01},
}
"""A step of one sequence takes 11 ms, one of eight 18 ms: eight make five times the tokens."""

WORKLOAD = """\
workload:
  promptTokens: {distribution: Uniform, min: 20, max: 40}
  outputTokens: {distribution: Uniform, min: 8, max: 16}
  arrivals: {process: Closed, users: 8}
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, dict[str, Any], list[str]]:
    """Exit code, output, report, what was left behind."""
    directory = tmp_path_factory.mktemp("throughput")
    workload, report = directory / "batch.yaml", directory / "report.json"
    workload.write_text(WORKLOAD, encoding="utf-8")
    command = Command(directory, HARDWARE)
    code = command.run(
        *("tune", "--objective", "throughput", "--workload", str(workload), "--report", str(report)),
        *("--bounds", "seqs=2..8,tokens=256..512"),
        *("--ladder", "maxConcurrency=8,recovery=20ms,maxStageDuration=20s,controlTolerancePercent=80"),
        "--",
        *engine("--max-num-seqs", "2", "--port", str(free_port())),
        within_s=280,
    )
    if "INVALID (Client " in command.output():
        # Without a latency target the client's lateness is held against a TTFT of some 40 ms.
        pytest.skip("the machine was too busy to measure, which the run said; repeat it on a quiet one")
    assert report.exists(), command.output()
    return code, command.output(), json.loads(report.read_bytes()), command.left_behind()


def test_a_setting_is_certified_by_its_measured_tokens(tuned: tuple[int, str, dict[str, Any], list[str]]) -> None:
    code, output, report, left_behind = tuned
    assert code == 0, output
    assert left_behind == []
    choice = report["choice"]
    assert report["verdict"] == "Pass"
    assert 4 <= choice["max_num_seqs"] <= 8
    certified = [stage for stage in report["stages"] if stage["kind"] == "Certify"][-1]
    assert certified["users"] == 8
    assert choice["output_tokens_per_second"] == pytest.approx(certified["output_tokens_per_second_lower"], rel=0.01)
    assert certified["output_tokens_per_second_upper"] <= 1.1 * certified["output_tokens_per_second_lower"]
    assert choice["requests_per_second"] > 0


def test_the_gain_over_the_present_setting_is_that_of_the_intervals(
    tuned: tuple[int, str, dict[str, Any], list[str]],
) -> None:
    _, output, report, _ = tuned
    present = [stage for stage in report["stages"] if stage["kind"] == "Baseline"][-1]
    assert present["max_num_seqs"] == 2
    assert report["choice"]["output_tokens_per_second"] > 1.5 * present["output_tokens_per_second_upper"]
    assert report["advice"] == "Switch"
    assert output.rstrip().splitlines()[-1].strip() == report["choice"]["command"]


def test_no_latency_is_promised_or_judged(tuned: tuple[int, str, dict[str, Any], list[str]]) -> None:
    _, output, report, _ = tuned
    assert all(stage["misses"] in (None, 0) for stage in report["stages"])
    assert all(stage["offered_requests_per_second"] is None for stage in report["stages"])
    assert "output tokens/s" in output
