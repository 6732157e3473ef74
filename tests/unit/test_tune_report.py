import json
from pathlib import Path

import pytest

from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus, Verdict
from kneekeeper.local.command import read_command
from kneekeeper.local.report import ExitCode, exit_code_of, in_flags, report_of, verdict_of
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
    ("outcome", "code", "verdict"),
    [
        (RunOutcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (RunOutcome.FAILED, ExitCode.FAILED, Verdict.INCONCLUSIVE),
        (RunOutcome.IMPOSSIBLE_SLO, ExitCode.FAILED, Verdict.FAIL),
        (RunOutcome.CANCELLED, ExitCode.FAILED, Verdict.INCONCLUSIVE),
    ],
)
def test_a_run_that_certified_nothing_has_no_choice(
    outcome: RunOutcome, code: ExitCode, verdict: Verdict, finished: TuneState
) -> None:
    status = TuningRunStatus(outcome=outcome)
    assert exit_code_of(status) is code
    assert verdict_of(status) is verdict
    assert report_of(finished.with_changes(status=status), COMMAND).choice is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("raise spec.probe.budget.", "raise --budget."),
        ("(spec.probe.budget.maxRestarts)", "(--budget maxRestarts)"),
        ("spec.probe.ladder.maxConcurrency was reached.", "--ladder maxConcurrency was reached."),
        ("spec.parameters.maxNumBatchedTokens.max 64 is below 512", "--bounds maxNumBatchedTokens.max 64 is below 512"),
        ("does not act on spec.workload.classes.", "does not act on --workload classes."),
        ("Nothing to translate.", "Nothing to translate."),
    ],
)
def test_messages_name_the_flags_instead_of_a_profiles_fields(message: str, told: str) -> None:
    assert in_flags(message) == told
