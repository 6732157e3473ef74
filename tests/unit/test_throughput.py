import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Closed, Fixed, Open
from kneekeeper.api.stage import Limits, Slo, StageSpec, Target
from kneekeeper.api.tuning_run import StageKind, Verdict
from kneekeeper.domain.samples import StageData
from kneekeeper.domain.stats import Interval
from kneekeeper.domain.throughput import gain_percent, is_of_throughput, output_rate, proof_of, rate_of
from tests.unit.stage_builders import summary


def served(
    rate: float = 10.0,
    *,
    requests: int = 600,
    stay_s: float = 1.0,
    tokens: float = 20.0,
    failed: int = 0,
    seed: int = 1,
) -> StageData:
    """An engine that always has `rate` x `stay_s` requests, each of about `tokens` tokens."""
    rng = np.random.default_rng(seed)
    intended = np.arange(requests) / rate
    output = rng.poisson(tokens, requests).clip(1).astype(np.int64)
    ok = np.ones(requests, dtype=np.bool_)
    ok[np.linspace(0, requests - 1, failed).astype(int)] = False
    return StageData(
        warmup_s=0.0,
        intended_s=intended,
        first_s=intended + 0.1 * stay_s,
        last_s=intended + stay_s,
        prompt_tokens=np.full(requests, 100),
        output_tokens=output,
        first_chunk_tokens=np.ones(requests, dtype=np.int64),
        ok=ok,
    )


def interval(data: StageData) -> Interval:
    found = output_rate(data)
    assert found is not None
    return found


def test_the_interval_of_a_throughput_holds_the_true_one_as_often_as_it_says():
    truth = 10.0 * 20.0
    found = [interval(served(seed=seed)) for seed in range(200)]
    below = sum(each.lower > truth for each in found)
    above = sum(each.upper < truth for each in found)
    # 5% each; with twenty windows of Poisson noise the 99.9% limit of 200 draws is 21.
    assert below <= 21
    assert above <= 21
    assert np.median([each.ratio for each in found]) < 1.1


def test_a_stage_without_room_for_five_stays_has_no_throughput():
    assert output_rate(served(requests=45, stay_s=1.0)) is None
    assert output_rate(served(requests=300, failed=300)) is None


def test_tokens_of_failed_requests_are_no_throughput():
    assert interval(served(failed=300)).estimate < 0.6 * interval(served()).estimate


def test_a_known_throughput_is_proven_and_its_limits_are_told():
    data = served()
    proof = proof_of(data, output_rate(data))
    assert proof.verdict is Verdict.PASS
    assert "output tokens/s" in proof.message


def test_a_stage_where_many_requests_fail_fails():
    data = served(failed=60)
    assert proof_of(data, output_rate(data)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("data", "unsteady"),
    [
        (served(requests=45), ""),  # too short for an interval
        (served(), "Ended because 600 requests were sent; throughput still grew."),
        (served(failed=8), ""),  # above 1%, but perhaps by chance
        (served(requests=60, tokens=2.0), ""),  # too wide
    ],
)
def test_what_does_not_tell_a_throughput_is_inconclusive(data: StageData, unsteady: str):
    assert proof_of(data, output_rate(data), unsteady=unsteady).verdict is Verdict.INCONCLUSIVE


@given(st.floats(1, 1e5), st.floats(1, 1e5))
def test_a_gain_is_never_more_than_the_estimates_differ_by(choice: float, present: float):
    gain = gain_percent(
        Interval(choice, 0.98 * choice, 1.02 * choice), Interval(present, 0.97 * present, 1.03 * present)
    )
    assert gain <= 100 * (choice / present - 1)
    assert gain >= -100


def test_only_a_judged_closed_loop_without_targets_proves_a_throughput():
    spec = StageSpec(
        id="s",
        target=Target(host="127.0.0.1", port=8000, model="m"),
        prompt_tokens=Fixed(value=1),
        output_tokens=Fixed(value=1),
        arrivals=Closed(users=4),
        limits=Limits(min_requests=1, max_requests=2, max_duration_s=1),
        seed=1,
    )
    assert is_of_throughput(spec, StageKind.CERTIFY)
    assert not is_of_throughput(spec, StageKind.RAMP)
    assert not is_of_throughput(spec.model_copy(update={"slo": Slo(tpot_s=1.0)}), StageKind.CERTIFY)
    assert not is_of_throughput(spec.model_copy(update={"arrivals": Open(rate=1.0)}), StageKind.BASELINE)


def test_a_stored_stage_has_an_interval_where_it_proved_one():
    assert rate_of(summary()) is None
    stage = summary(output_tokens_per_second_lower=390.0, output_tokens_per_second_upper=410.0)
    assert rate_of(stage) == Interval(400.0, 390.0, 410.0)
