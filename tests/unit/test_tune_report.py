import json
from pathlib import Path

import pytest
from rich.console import Console

from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus, Verdict
from kneekeeper.cli.tune import _advise
from kneekeeper.local.command import read_command
from kneekeeper.local.report import Advice, ExitCode, exit_code_of, report_of, verdict_of
from kneekeeper.local.state import TuneState
from tests.unit.plan.world import at_step

COMMAND = read_command(["vllm", "serve", "m", "--max-num-seqs=4"], {})


@pytest.fixture(scope="module")
def finished() -> TuneState:
    world = at_step(RunStep.BASELINE)
    world.settle()
    status = world.last_run.status
    assert status.plan is not None
    return TuneState(uid="u", words=["vllm"], profile=status.plan.profile_spec, status=status, elapsed=12.0)


def test_the_promised_rate_is_that_of_the_certification(finished: TuneState, tmp_path: Path) -> None:
    report_of(finished, COMMAND).write(tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_bytes())
    proven = finished.status.certifications[-1]
    assert report["choice"]["requests_per_second"] == proven.promised_requests_per_second
    assert report["choice"]["max_num_seqs"] == proven.setting.max_num_seqs
    assert f"--max-num-seqs={proven.setting.max_num_seqs}" in report["choice"]["command"]
    assert report["verdict"] == "Pass"
    assert report["engine_starts"] == finished.status.cost.engine_starts
    assert len(report["stages"]) == len(finished.status.stages)
    assert report["fit"]["alpha_s"] == finished.status.fit.alpha if finished.status.fit else False


def test_a_run_that_certified_ends_well_even_where_the_present_setting_is_as_good(finished: TuneState) -> None:
    for outcome in (RunOutcome.CERTIFIED, RunOutcome.NO_IMPROVEMENT):
        assert exit_code_of(finished.status.with_changes(outcome=outcome)) is ExitCode.CERTIFIED


@pytest.mark.parametrize(
    ("outcome", "present_breaks_slo", "advice", "last_word"),
    [
        (RunOutcome.CERTIFIED, True, Advice.SWITCH, "COMMAND"),
        (RunOutcome.NO_IMPROVEMENT, False, Advice.KEEP, "Keep the present setting OLD: NEW is not shown to be better."),
        (RunOutcome.CERTIFIED, None, Advice.NOT_COMPARED, "COMMAND"),
    ],
)
def test_the_last_word_says_whether_to_switch(
    outcome: RunOutcome,
    present_breaks_slo: bool | None,
    advice: Advice,
    last_word: str,
    finished: TuneState,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = finished.status.with_changes(outcome=outcome, present_breaks_slo=present_breaks_slo)
    report = report_of(finished.with_changes(status=status), COMMAND)
    assert report.advice is advice
    assert report.choice is not None
    assert report.present is not None
    _advise(report, Console(width=140))
    told = capsys.readouterr().out
    new, old = (f"{each.max_num_seqs}/{each.max_num_batched_tokens}" for each in (report.choice, report.present))
    wanted = last_word.replace("COMMAND", report.choice.command).replace("NEW", new).replace("OLD", old)
    assert told.strip().splitlines()[-1].strip() == wanted
    assert f"\n  {report.choice.command}\n" in told
    assert ("Switch from" in told, "The proven alternative" in told, "not compared" in told) == tuple(
        advice is each for each in (Advice.SWITCH, Advice.KEEP, Advice.NOT_COMPARED)
    )


def test_where_the_present_setting_is_the_best_no_command_is_printed(
    finished: TuneState, capsys: pytest.CaptureFixture[str]
) -> None:
    proven, plan = finished.status.certifications[-1].setting, finished.status.plan
    assert plan is not None
    status = finished.status.with_changes(
        outcome=RunOutcome.NO_IMPROVEMENT, plan=plan.with_changes(present=proven), present_breaks_slo=None
    )
    report = report_of(finished.with_changes(status=status), COMMAND)
    _advise(report, Console(width=140))
    assert capsys.readouterr().out == f"\nKeep the present setting {proven}: nothing better was found.\n"


@pytest.mark.parametrize(
    ("outcome", "code", "verdict"),
    [
        (RunOutcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (RunOutcome.FAILED, ExitCode.FAILED, Verdict.INCONCLUSIVE),
        (RunOutcome.IMPOSSIBLE_SLO, ExitCode.FAILED, Verdict.FAIL),
        (RunOutcome.CANCELLED, ExitCode.FAILED, Verdict.INCONCLUSIVE),
    ],
)
def test_a_run_that_certified_nothing_has_no_choice(
    outcome: RunOutcome,
    code: ExitCode,
    verdict: Verdict,
    finished: TuneState,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = TuningRunStatus(outcome=outcome)
    assert exit_code_of(status) is code
    assert verdict_of(status) is verdict
    report = report_of(finished.with_changes(status=status), COMMAND)
    assert (report.choice, report.advice) == (None, None)
    _advise(report, Console(width=140))
    assert capsys.readouterr().out == ""
