import pytest

from kneekeeper.api.stage import NOT_STEADY, Slo, StageState
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.load_level import delivered, verdict_of_levels
from tests.unit.level_builders import level_of, samples_of

SLO = Slo(ttft_s=1.0, tpot_s=0.05)


def test_latencies_are_those_of_the_requests_that_succeeded() -> None:
    level = level_of(400, failed=40)
    assert level.ttft.p50_s == pytest.approx(0.1)
    assert level.tpot.p99_s == pytest.approx(0.02)
    assert level.e2e.mean_s == pytest.approx(0.3)
    assert (level.requests, level.failed) == (400, 40)


def test_without_targets_nothing_is_judged() -> None:
    assert level_of().verdict is None


def test_a_level_that_holds_the_targets_passes_and_one_that_breaks_them_fails() -> None:
    assert level_of(2000, slo=SLO).verdict is Verdict.PASS
    assert level_of(2000, slo=SLO, slow=200).verdict is Verdict.FAIL


def test_too_few_requests_are_inconclusive_and_say_how_many_would_tell() -> None:
    level = level_of(40, slo=SLO)
    assert level.verdict is Verdict.INCONCLUSIVE
    assert level.requests_to_decide > 550, "650 are the fewest that pass"
    assert f"about {level.requests_to_decide} more are needed" in level.message
    assert level_of(2000, slo=SLO).requests_to_decide == 0


def test_what_was_sent_before_the_level_was_warm_is_counted_apart() -> None:
    level = level_of(400, slo=SLO, warmup_s=4.95)
    assert (level.warmup_requests, level.requests) == (50, 350)
    assert (level_of(400).warmup_requests, level_of(400).requests) == (0, 400)


def test_a_level_that_was_never_steady_does_not_pass_but_may_fail() -> None:
    sentence = "Ended because 80 s have passed; the requests in flight drift."
    drifting = level_of(2000, slo=SLO, reason=NOT_STEADY, message=sentence)
    assert drifting.verdict is Verdict.INCONCLUSIVE
    assert sentence in drifting.message
    assert level_of(2000, slo=SLO, reason=NOT_STEADY, message=sentence, slow=200).verdict is Verdict.FAIL


def test_a_level_in_which_nothing_was_sent_after_warm_up_says_so_and_why_it_ended() -> None:
    level = level_of(20, slo=SLO, warmup_s=30.0, message="Ended because all 20 requests were sent.")
    assert level.message == "No request was sent after warm-up. Ended because all 20 requests were sent."
    assert level.requests_to_decide == 650


def test_a_saturated_level_fails() -> None:
    assert level_of(40, slo=SLO, state=StageState.SATURATED).verdict is Verdict.FAIL


def test_what_the_client_broke_off_did_not_fail_but_missed_the_targets() -> None:
    level = level_of(400, slo=SLO, state=StageState.SATURATED, failed=10, broken_off=90, warmup_s=4.95)
    assert (level.requests, level.failed, level.broken_off, level.misses) == (350, 10, 90, 100)
    assert level_of(400, broken_off=400, warmup_s=4.95).broken_off == 350


def test_a_client_at_fault_says_nothing_of_the_server_with_or_without_targets() -> None:
    for slo in (SLO, Slo()):
        level = level_of(2000, slo=slo, state=StageState.INVALID, message="Client too slow.")
        assert level.verdict is Verdict.INVALID
        assert level.message == "Client too slow."


def test_a_server_that_stopped_answering_did_not_fail_the_targets() -> None:
    for slo in (SLO, Slo()):
        level = level_of(400, slo=slo, state=StageState.FAILED, failed=100, message="The last 100 requests failed.")
        assert (level.verdict, level.requests_to_decide) == (Verdict.VOID, 0)
        assert level.message == "The last 100 requests failed."


def test_a_level_that_was_broken_off_is_judged_by_what_it_had() -> None:
    assert level_of(2000, slo=SLO, state=StageState.CANCELLED, slow=200).verdict is Verdict.FAIL
    assert level_of(0, slo=SLO, state=StageState.CANCELLED).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([], None),
        ([None, None], None),
        ([Verdict.PASS, None], Verdict.PASS),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.PASS], Verdict.INVALID),
        ([Verdict.PASS, Verdict.VOID], Verdict.VOID),
        ([Verdict.INVALID, Verdict.FAIL], Verdict.FAIL),
    ],
)
def test_of_several_levels_the_worst_counts(verdicts: list[Verdict | None], worst: Verdict | None) -> None:
    from dataclasses import replace

    levels = [replace(level_of(10), verdict=verdict) for verdict in verdicts]
    assert verdict_of_levels(levels) is worst


def test_what_was_delivered_counts_only_successes_but_tells_of_the_others() -> None:
    found = delivered(samples_of(10, failed=2))
    assert (found.succeeded, found.not_succeeded) == (8, 2)
    assert (found.prompt_tokens, found.output_tokens) == (800, 88)
    assert found.ttft_mean_s == pytest.approx(0.1)
