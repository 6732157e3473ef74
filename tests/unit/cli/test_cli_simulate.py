"""`kneekeeper simulate` and `curve` on a run in a file: what is asked, and what comes out."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.main import main
from kneekeeper.cli.run_source import choose_run, objects_of
from kneekeeper.domain.certify import OFFERED_SHARE
from kneekeeper.domain.still_believed import AFTER_FAIL
from kneekeeper.domain.twin.surface import Predicted, Surface
from tests.unit.cli import recorded

FILE = str(recorded.APPLIED)


@cache
def asked(*words: str) -> dict[str, Any]:
    """The answer as JSON; the exit code agrees with it."""
    told = io.StringIO()
    with redirect_stdout(told):
        code = main(["simulate", "--run-file", FILE, *words, "-o", "json"])
    answer: dict[str, Any] = json.loads(told.getvalue())
    assert code == (ExitCode.DONE if answer["holds"] else ExitCode.NO)
    return answer


def test_without_a_question_it_tells_what_the_chosen_limits_carry():
    answer = asked()
    choice = recorded.run().status.choices[-1]
    assert answer["limits"] == {"max_num_seqs": 72, "max_num_batched_tokens": 384}
    assert answer["holds"]
    assert answer["capacity_requests_per_second"] == pytest.approx(choice.sustainable_requests_per_second, rel=0.1)
    assert answer["p99_tpot_ms"] <= answer["targets"]["p99_tpot_ms"]


def test_an_upper_limit_above_a_target_that_holds_is_explained(monkeypatch):
    assert not any("alone P99" in each for each in asked("--rate", "1")["warnings"])
    monkeypatch.setattr(Surface, "predicted", lambda *_: Predicted(0.001, 9.0, 9.0))
    told = io.StringIO()
    with redirect_stdout(told):
        code = main(["simulate", "--run-file", FILE, "--rate", "1", "-o", "json"])
    answer = json.loads(told.getvalue())
    assert (code, answer["holds"]) == (ExitCode.DONE, True)
    assert any("in more than one of ten alone P99 TPOT is above its target" in each for each in answer["warnings"])


def test_a_tighter_target_costs_capacity_and_another_rate_may_miss_it():
    usual, tight = asked(), asked("--tpot", "15ms")
    assert tight["capacity_requests_per_second"] < usual["capacity_requests_per_second"]
    assert tight["targets"] == {**usual["targets"], "p99_tpot_ms": 15.0}
    assert not asked("--rate", "60")["holds"]


def test_replicas_are_not_so_many_times_one_where_the_router_is_unfair():
    one = asked()
    four = asked("--replicas", "4", "--imbalance", "25", "--rate", "40", "--gpu-hour-price", "2.5")
    assert four["capacity_requests_per_second"] == pytest.approx(
        4 * one["capacity_requests_per_second"] / 1.25, rel=0.001
    )
    assert four["busiest_requests_per_second"] == 12.5
    assert four["replicas_needed"] <= 4
    assert four["cost_per_hour"] == 2.5 * four["gpus"]


def test_replicas_are_planned_with_what_a_promise_keeps_in_hand():
    one = asked()
    planned = one["replica_capacity_requests_per_second"] / 1.2
    assert one["replica_plan_requests_per_second"] == pytest.approx(planned, rel=0.001)
    assert one["replicas_needed"] is None  # no rate was asked
    assert asked("--rate", str(2.98 * planned))["replicas_needed"] == 3
    assert asked("--rate", str(3.02 * planned))["replicas_needed"] == 4


def test_longer_answers_cost_capacity_and_are_told_as_an_extrapolation(tmp_path: Path):
    traffic = tmp_path / "long.yaml"
    workload = recorded.objects()[0]["spec"]["workload"] | {
        "outputTokens": {"distribution": "LogNormal", "mean": 240, "p99": 600}
    }
    traffic.write_text(yaml.safe_dump({"workload": workload}))
    usual, longer = asked(), asked("--workload", str(traffic))
    assert longer["capacity_requests_per_second"] < 0.6 * usual["capacity_requests_per_second"]
    assert any("answers are 4 times as long" in each for each in longer["warnings"])
    assert not any("times as long" in each for each in usual["warnings"])


def test_what_was_measured_to_fail_is_not_predicted_to_hold():
    failed = [each for each in recorded.run().status.certifications if each.verdict is Verdict.FAIL]
    assert failed
    rate = failed[0].offered_requests_per_second
    answer = asked()
    assert answer["capacity_requests_per_second"] == pytest.approx(AFTER_FAIL / OFFERED_SHARE * rate, rel=0.001)
    assert any(f"failed its certification at {rate:.3g}" in each for each in answer["warnings"])
    assert not asked("--rate", str(rate))["holds"]
    assert asked("--rate", str(rate), "--tpot", "1s", "--ttft", "10s")["holds"]


def test_the_search_finds_the_limits_that_carry_most(monkeypatch: pytest.MonkeyPatch):
    tried = [Setting(max_num_seqs=seqs, max_num_batched_tokens=512) for seqs in (8, 64, 128)]
    monkeypatch.setattr("kneekeeper.domain.views.simulation.shown_settings", lambda model: tried)
    carried = {
        each.max_num_seqs: asked(
            "--tpot", "30ms", "--max-num-seqs", str(each.max_num_seqs), "--max-num-batched-tokens", "512"
        )["replica_capacity_requests_per_second"]
        for each in tried
    }
    found = asked("--tpot", "30ms", "--search")
    assert carried[found["limits"]["max_num_seqs"]] >= 0.97 * max(carried.values())
    assert min(carried.values()) < 0.9 * max(carried.values())


def test_targets_that_no_rate_holds_are_an_answer_too():
    answer = asked("--ttft", "1ms", "--replicas", "2")
    assert (answer["holds"], answer["capacity_requests_per_second"], answer["replicas_needed"]) == (False, 0.0, None)
    assert answer["p99_ttft_ms"] > 1
    assert any("holds the targets at no rate" in each for each in answer["warnings"])


def test_limits_beyond_the_ramp_are_told_as_an_extrapolation():
    answer = asked("--max-num-seqs", "2048", "--rate", "10")
    assert answer["limits"]["max_num_seqs"] == 2048
    assert any("beyond what the ramp covered" in each for each in answer["warnings"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a ServingProfile"),
        (["--run-file", "/nowhere.yaml"], "cannot be read"),
        (["--run-file", FILE, "--run", "other"], "there is no run other"),
        (["--run-file", FILE, "--search", "--max-num-seqs", "8"], "--search looks for the limits"),
        (["--run-file", FILE, "--workload", "/nowhere.yaml"], "--workload"),
    ],
)
def test_wrong_questions_are_refused_with_what_to_do(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", *words]) == ExitCode.CANNOT
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--replicas", "0"], ["--max-num-seqs", "0"], ["--imbalance", "-5"], ["--tpot", "soon"]]
)
def test_numbers_that_mean_nothing_are_refused_by_the_parser(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--run-file", FILE, *words])
    assert ended.value.code == ExitCode.CANNOT
    assert words[0] in capsys.readouterr().err


def test_a_run_without_a_ramp_has_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = recorded.objects()[1]
    run["status"]["stages"] = run["status"]["stages"][:1]
    young = tmp_path / "run.yaml"
    young.write_text(yaml.safe_dump(run))
    assert main(["simulate", "--run-file", str(young)]) == ExitCode.CANNOT
    assert "no usable ramp yet" in capsys.readouterr().err
    assert main(["curve", "--run-file", str(young)]) == ExitCode.CANNOT
    assert "a curve takes 2" in capsys.readouterr().err


def test_the_newest_run_with_a_curve_is_drawn_and_a_newer_one_without_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run, young = recorded.objects()[1], recorded.objects()[1]
    young["metadata"] = {**young["metadata"], "name": "chat-impossible"}
    young["status"]["stages"] = young["status"]["stages"][:1]
    both = tmp_path / "runs.yaml"
    both.write_text(yaml.safe_dump_all([run, young]))
    assert main(["curve", "--run-file", str(both)]) == ExitCode.DONE
    told = capsys.readouterr()
    assert run["metadata"]["name"] in told.out
    assert told.err.startswith("chat-impossible is newer and has too few levels")
    assert main(["curve", "--run-file", str(both), "--run", "chat-impossible"]) == ExitCode.CANNOT
    assert "--run" in capsys.readouterr().err


def test_a_file_may_hold_a_list_a_stream_or_the_state_of_a_local_run():
    profile, run = recorded.objects()
    for documents in ([profile, run], [{"kind": "List", "items": [profile, run]}]):
        runs, profiles = objects_of(documents, "file")
        assert (len(runs), len(profiles)) == (1, 1)
    state = {"words": ["vllm", "serve"], "uid": "1", "profile": profile["spec"], "status": run["status"]}
    runs, profiles = objects_of([state], "file")
    assert (runs[0].metadata["name"], profiles) == ("tune", [])
    with pytest.raises(CannotError, match="holds no TuningRun"):
        objects_of([profile, "text", None], "file")
    with pytest.raises(CannotError, match="does not fit this version"):
        objects_of([{**run, "status": {"step": "Unheard"}}], "file")


def test_the_newest_run_with_stages_is_taken():
    run = recorded.run()
    empty = run.with_changes(metadata={"name": "next"}, status=type(run.status)())
    assert choose_run([run, empty], None) is run
    with pytest.raises(CannotError, match="nothing was measured yet"):
        choose_run([empty], None)


def test_the_state_of_a_local_run_gives_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    profile, run = recorded.objects()
    state = tmp_path / "run.json"
    state.write_text(
        json.dumps({"words": [], "uid": "1", "profile": profile["spec"], "status": run["status"]}, default=str)
    )
    assert main(["curve", "--run-file", str(state)]) == ExitCode.DONE
    assert "tune, of profile tune" in capsys.readouterr().out
