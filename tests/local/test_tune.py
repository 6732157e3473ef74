"""`kneekeeper tune` from its command line to its report, against simulated engines."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engine_process import free_port
from tests.local.processes import Command, Here, engine, here, stage_lines

pytestmark = pytest.mark.timeout(240)

HARDWARE: dict[str, Any] = {
    "startup_s": 0.1,
    "api_ms_per_request": 0.0,
    "sequence_limit": 8,
    "step_time": {"base_ms": 2.5, "per_sequence_ms": 0.3, "per_prefill_token_ms": 0.02, "noise": 0.01},
}
"""Fast, so that stages are short, and with a limit that makes the highest ceiling fail."""

WORKLOAD = """\
workload:
  promptTokens: {distribution: Uniform, min: 20, max: 40}
  outputTokens: {distribution: Uniform, min: 4, max: 8}
  arrivals: {process: Constant}
"""
"""Even arrivals take the fewest requests to certify."""

TARGETS = ("--ttft", "1s", "--tpot", "250ms")
"""So long that the client's delays on a busy machine hardly matter beside them."""


def options(directory: Path) -> tuple[str, ...]:
    workload = directory / "workload.yaml"
    workload.write_text(WORKLOAD, encoding="utf-8")
    return (
        *TARGETS,
        *("--workload", str(workload)),
        *("--bounds", "seqs=4..16,tokens=256..512"),
        *("--ladder", "maxConcurrency=4,recovery=20ms,maxStageDuration=15s,controlTolerancePercent=80"),
    )


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], int, list[str]]:
    """A run that got a Ctrl-C in its ramp: state, decided stages, exit code, what was left behind."""
    directory = tmp_path_factory.mktemp("tune")
    command = Command(directory, HARDWARE)
    command.start("tune", *options(directory), "--", *engine("--max-num-seqs", "1", "--port", str(free_port())))
    command.until("  ramp-1")
    command.interrupt()
    code = command.wait(30)
    found = re.search(r"--resume (\S+)", command.output())
    assert found, command.output()
    return Path(found[1]), stage_lines(command.output()), code, command.left_behind()


@pytest.fixture(scope="module")
def resumed(interrupted: tuple[Path, list[str], int, list[str]]) -> tuple[int, str, dict[str, Any], list[str]]:
    """The same run, gone on to its end: exit code, output, report, what was left behind."""
    state = interrupted[0]
    command = Command(state.parents[2], HARDWARE)
    report = state.parents[2] / "report.json"
    code = command.run("tune", "--resume", str(state), "--report", str(report))
    return code, command.output(), json.loads(report.read_bytes()), command.left_behind()


def test_ctrl_c_in_the_ramp_leaves_nothing_behind_and_names_the_way_on(
    interrupted: tuple[Path, list[str], int, list[str]],
) -> None:
    state, stages, code, left_behind = interrupted
    assert code == 130
    assert left_behind == []
    assert "ramp-1" in stages
    assert (state / "run.json").is_file()


def test_a_resumed_run_repeats_no_decided_stage(
    interrupted: tuple[Path, list[str], int, list[str]], resumed: tuple[int, str, dict[str, Any], list[str]]
) -> None:
    before, told = interrupted[1], stage_lines(resumed[1])
    assert not set(before) & set(told)
    names = [stage["name"] for stage in resumed[2]["stages"]]
    assert names[: len(before)] == before
    assert names == [*before, *told]
    assert len(set(names)) == len(names)


def test_a_run_ends_with_a_certified_choice_inside_the_bounds(
    resumed: tuple[int, str, dict[str, Any], list[str]],
) -> None:
    code, output, report, _ = resumed
    assert code == 0, output
    choice = report["choice"]
    assert 4 <= choice["max_num_seqs"] <= 8
    assert 256 <= choice["max_num_batched_tokens"] <= 512
    assert choice["requests_per_second"] > 0
    assert choice["bound_by"]
    assert report["verdict"] == "Pass"
    certified = [stage for stage in report["stages"] if stage["kind"] == "Certify"][-1]
    assert certified["offered_requests_per_second"] == pytest.approx(1.2 * choice["requests_per_second"], rel=1e-3)
    assert certified["max_num_seqs"] == choice["max_num_seqs"]
    assert report["advice"] == "Switch"
    assert output.rstrip().splitlines()[-1].strip() == choice["command"]


def test_the_report_has_the_fit_the_present_setting_and_what_the_run_cost(
    resumed: tuple[int, str, dict[str, Any], list[str]],
) -> None:
    report = resumed[2]
    assert report["fit"]["alpha_s"] > 0
    assert report["present"] == {"max_num_seqs": 1, "max_num_batched_tokens": 2048, "breaks_slo": True}
    # The highest ceiling failed, the lower one was interrupted and started again; then the choice, then the present.
    assert report["engine_starts"] == 5
    assert 0 < report["measure_s"] < report["elapsed_s"]


def test_a_ceiling_that_does_not_start_is_lowered_to_the_limit_that_the_log_names(
    resumed: tuple[int, str, dict[str, Any], list[str]],
) -> None:
    report = resumed[2]
    assert [(f["max_num_seqs"], f["kind"]) for f in report["failed_starts"]] == [(16, "MambaBlocks")]
    assert report["stages"][0]["max_num_seqs"] == 8


def test_a_finished_run_leaves_no_process_and_shows_table_and_chart(
    resumed: tuple[int, str, dict[str, Any], list[str]],
) -> None:
    _, output, _, left_behind = resumed
    assert left_behind == []
    assert "certify-1" in output
    assert "P99 TPOT" in output
    assert "requests/s against requests in flight" in output


@pytest.fixture
def local(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    hardware = HARDWARE | {"sequence_limit": None, "fault": {"after_s": 0.8, "kind": "Exit"}}
    return here(tmp_path, capsys, monkeypatch, hardware)


def test_a_server_that_does_not_start_is_told_with_its_cause_and_the_next_step(local: Here) -> None:
    words = engine("--max-model-len", "99999", "--port", str(free_port()))
    ended = local.run("tune", *options(local.directory), "--", *words)
    assert ended.code == 1
    assert "derived max_model_len" in ended.output
    assert "Lower --max-model-len" in ended.output
    assert local.left_behind() == []


def test_a_program_that_is_not_there_is_told_before_any_try(local: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(local.directory))
    ended = local.run("tune", "--ttft", "500ms", "--", "vllm", "serve", "tiny")
    assert ended.code == 2
    told = "kneekeeper tune: vllm is not on the PATH. Install it (pip install vllm), or give the program's path after"
    assert ended.output == f"{told} `--`.\n"


def test_an_engine_that_is_not_installed_is_not_tried_with_ever_lower_limits_and_told_once(local: Here) -> None:
    ended = local.run("tune", "--ttft", "500ms", "--", "env", "vllm-of-nowhere=1", "vllm", "serve", "tiny")
    assert ended.code == 1
    assert ended.output.count("Starts the engine") == 2, "with the highest limits and as it is"
    assert ended.output.count("No such file or directory. Install vLLM where the command runs") == 1
    assert "seqs/tokens" not in ended.output, "an empty table tells nothing"


def test_a_server_that_keeps_crashing_under_load_is_told(local: Here) -> None:
    (local.directory / "prompts.jsonl").write_text('{"text": "Why is the sky blue?"}\n', encoding="utf-8")
    words = engine("--max-num-seqs", "1", "--port", str(free_port()))
    more = ("--prompts", "prompts.jsonl", "--report", "report.json")
    ended = local.run("tune", *options(local.directory), *more, "--", *words)
    assert ended.code == 1
    found = json.loads((local.directory / "report.json").read_bytes())
    assert found["cause"] == "CrashesUnderLoad"
    assert found["choice"] is None
    assert found["message"] in ended.output
    assert local.left_behind() == []


def test_a_kneekeeper_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    command = Command(tmp_path, HARDWARE | {"startup_s": 60.0})
    command.start("tune", *options(tmp_path), "--", *engine("--port", str(free_port())))
    command.until("to start")
    end = time.monotonic() + 30
    while not any("kneekeeper.engine" in line and "guard" not in line for line in command.running()):
        assert time.monotonic() < end, command.output()
        time.sleep(0.1)
    assert command.process is not None
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait(10)
    assert command.left_behind() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--ttft", "500ms"), "No command"),
        (("--", "vllm", "serve", "tiny"), "--ttft 500ms"),
        (("--ttft", "1s", "--bounds", "seqs=8", "--", "vllm", "serve", "tiny"), "write it like 8..256"),
        (("--ttft", "1s", "--bounds", "seqs=9..8", "--", "vllm", "serve", "tiny"), "min must not be above max"),
        (("--ttft", "1s", "--budget", "restarts=2", "--", "vllm", "serve", "tiny"), "maxRestarts"),
        (("--ttft", "1s", "--workload", "none.yaml", "--", "vllm", "serve", "tiny"), "none.yaml"),
        (("--ttft", "1s", "--", "vllm", "bench"), "Only `vllm serve` starts"),
        (("--ttft", "1s", "--trace", "none.csv", "--", "vllm", "serve", "tiny"), "none.csv"),
        (("--ttft", "1s", "--report", "no/report.json", "--", "vllm", "serve", "tiny"), "no/report.json"),
        (("--resume", "nowhere"), "does not exist"),
        (("--resume", "nowhere", "--ttft", "1s"), "leave --ttft out"),
        (("--resume", "nowhere", "--budget", "maxRestarts=5"), "leave --budget out"),
        (("--ttft", "11m", "--", "vllm", "serve", "tiny"), "--ttft, --tpot and --e2e must be above 0 and at most 10m"),
        (("--ttft", "1s", "--budget", "maxRestarts=1.5", "--", "vllm", "serve", "tiny"), "write it like maxRestarts=3"),
        (("--ttft", "1s", "--", "bash", "-c", "ls"), "Write the command as vllm serve MODEL"),
    ],
)
def test_wrong_usage_is_told_with_an_example(words: tuple[str, ...], told: str, local: Here) -> None:
    ended = local.run("tune", *words)
    assert ended.code == 2
    assert told in ended.output
