import pytest

from kneekeeper.api.offered_load import Arrivals, Closed, Fixed, Open
from kneekeeper.api.stage import Evidence, Limits, Outcome, Samples, Slo, StageSpec, StageState, StageStatus, Target
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.summary import summarise
from tests.unit.stage_builders import CEILING

FOUR_USERS = Closed(users=4)


def summed(
    requests: int = 400,
    *,
    failed: int = 0,
    slow: int = 0,
    kind: StageKind = StageKind.RAMP,
    state: StageState = StageState.DONE,
    arrivals: Arrivals = FOUR_USERS,
    message: str = "",
    warmup_s: float = 0.0,
    min_pass_requests: int | None = None,
) -> StageSummary:
    intended = [0.1 * i for i in range(requests)]
    first = [t + (5.0 if i < slow else 0.5) for i, t in enumerate(intended)]
    outcome = [Outcome.OK] * (requests - failed) + [Outcome.ERROR] * failed
    samples = Samples(
        warmup_s=warmup_s,
        intended_s=intended,
        sent_s=intended,
        first_s=first,
        last_s=[t + 0.9 for t in first],
        prompt_tokens=[100] * requests,
        output_tokens=[10] * requests,
        first_chunk_tokens=[1] * requests,
        chunks=[10] * requests,
        outcome=outcome,
    )
    status = StageStatus(
        id="stage",
        state=state,
        message=message,
        elapsed_s=42.0,
        warmup_s=warmup_s,
        planned=requests,
        sent=requests,
        succeeded=requests - failed,
        failed=failed,
        timed_out=0,
        in_flight=0,
        requests_per_s=10.0,
        output_tokens_per_s=100.0,
        mean_concurrency=4.0,
        evidence=Evidence(send_lag_p99_s=0, loop_lag_p99_s=0, cpu_share=0, achieved_over_offered=1),
    )
    spec = StageSpec(
        id="stage",
        target=Target(host="127.0.0.1", port=80, model="m"),
        prompt_tokens=Fixed(value=100),
        output_tokens=Fixed(value=10),
        arrivals=arrivals,
        limits=Limits(min_requests=1, max_requests=1000, max_duration_s=60),
        slo=Slo(ttft_s=1.0),
        min_pass_requests=min_pass_requests,
        seed=1,
    )
    return summarise(spec, status, samples, name="ramp-4", kind=kind, setting=CEILING)


def test_a_stage_is_summed_up_in_its_medians_and_tails():
    stage = summed()
    assert [stage.p50_ttft, stage.p99_ttft] == pytest.approx([0.5, 0.5])
    assert [stage.p50_tpot, stage.p99_tpot_upper] == pytest.approx([0.1, 0.1])
    assert (stage.prompt_tokens_mean, stage.output_tokens_mean) == (100, 10)
    assert (stage.users, stage.offered_requests_per_second) == (4, None)
    assert stage.duration == 42.0
    assert stage.verdict is None


def test_an_open_loop_stage_carries_its_rate():
    stage = summed(arrivals=Open(rate=3.5))
    assert (stage.users, stage.offered_requests_per_second) == (None, 3.5)


def test_below_299_requests_a_p99_has_no_bound():
    stage = summed(298)
    assert stage.p99_ttft is not None
    assert stage.p99_ttft_upper is None
    assert stage.p99_tpot_upper is None


def test_failed_requests_are_misses_and_not_latencies():
    stage = summed(400, failed=10, slow=5)
    assert (stage.requests, stage.failed, stage.misses) == (400, 10, 15)


@pytest.mark.parametrize("state", [StageState.INVALID, StageState.FAILED, StageState.CANCELLED])
def test_a_stage_that_says_nothing_of_the_engine_is_invalid_and_says_why(state):
    stage = summed(state=state, message="The client was late.")
    assert (stage.verdict, stage.message) == (Verdict.INVALID, "The client was late.")
    assert summed(state=state).message != ""


def test_a_stage_without_requests_is_invalid():
    assert summed(0).verdict == Verdict.INVALID
    assert summed(10, warmup_s=100.0).verdict == Verdict.INVALID


@pytest.mark.parametrize("kind", [StageKind.CERTIFY, StageKind.BASELINE])
def test_certifications_and_baselines_are_judged(kind):
    assert summed(1000, kind=kind).verdict == Verdict.PASS
    assert summed(1000, kind=kind, slow=100).verdict == Verdict.FAIL
    assert summed(100, kind=kind).verdict == Verdict.INCONCLUSIVE


def test_a_certification_that_saturates_fails_however_few_requests_missed():
    stage = summed(1000, kind=StageKind.CERTIFY, state=StageState.SATURATED)
    assert (stage.verdict, stage.saturated) == (Verdict.FAIL, True)


def test_a_saturated_stage_of_the_ladder_is_a_result_without_verdict():
    stage = summed(kind=StageKind.OPEN, state=StageState.SATURATED)
    assert (stage.verdict, stage.saturated) == (None, True)


def test_a_long_message_is_cut_to_what_the_status_holds():
    assert len(summed(state=StageState.FAILED, message="x" * 1000).message) == 512


def test_a_pass_takes_as_many_requests_as_the_stage_asked_for():
    assert summed(1000, kind=StageKind.CERTIFY, min_pass_requests=1500).verdict == Verdict.INCONCLUSIVE
