from dataclasses import replace

from e2e.realvllm import scenario
from e2e.realvllm.bench_client import BenchResult

AT_BAD = BenchResult(
    p99_ttft_ms=600.0,
    p50_ttft_ms=200.0,
    p99_tpot_ms=120.0,
    p50_tpot_ms=20.0,
    completed=300,
    failed=0,
    offered_rps=7.0,
    achieved_rps=6.9,
    duration_s=43.0,
)


def test_the_bad_setting_breaks_its_own_targets_and_half_its_tpot_meets_them():
    targets = scenario.targets_from([AT_BAD])
    assert not targets.are_met_by(AT_BAD)
    assert targets.are_met_by(replace(AT_BAD, p99_tpot_ms=60.0))


def test_each_target_counts_alone():
    targets = scenario.targets_from([AT_BAD])
    good = replace(AT_BAD, p99_tpot_ms=30.0)
    assert targets.are_met_by(good)
    assert not targets.are_met_by(replace(good, p99_ttft_ms=10 * AT_BAD.p99_ttft_ms))


def test_a_failed_request_meets_no_target():
    targets = scenario.targets_from([AT_BAD])
    assert not targets.are_met_by(replace(AT_BAD, p99_tpot_ms=30.0, completed=299, failed=1))


def test_every_request_fits_the_model_length():
    longest = scenario.PROMPT_TOKENS[1] + scenario.OUTPUT_TOKENS[1]
    assert longest <= scenario.BAD.max_model_len_tokens


def test_a_run_that_the_machine_stalled_does_not_loosen_the_targets():
    stalled = replace(AT_BAD, p99_ttft_ms=9600.0, p99_tpot_ms=1683.0)
    assert scenario.targets_from([stalled, AT_BAD]) == scenario.targets_from([AT_BAD])


def test_runs_agree_when_they_show_one_speed_at_which_the_server_kept_up():
    assert scenario.agree([AT_BAD, replace(AT_BAD, p99_tpot_ms=90.0)])
    assert not scenario.agree([AT_BAD, replace(AT_BAD, p99_tpot_ms=60.0)])
    assert not scenario.agree([AT_BAD, replace(AT_BAD, achieved_rps=6.5)])
