import math

import numpy as np
import pytest

from kneekeeper.api.stage import Outcome, Samples, Slo
from kneekeeper.domain.samples import StageData


def samples(
    intended: tuple[float, ...] = (0.0, 1.0, 2.0),
    first: tuple[float, ...] = (0.5, 1.2, 3.0),
    last: tuple[float, ...] = (1.5, 1.2, 4.0),
    output: tuple[int, ...] = (11, 1, 5),
    first_chunk: tuple[int, ...] = (1, 1, 1),
    outcome: tuple[Outcome, ...] = (Outcome.OK, Outcome.OK, Outcome.OK),
    warmup_s: float = 0.0,
) -> Samples:
    return Samples(
        warmup_s=warmup_s,
        intended_s=list(intended),
        sent_s=[t + 0.1 for t in intended],
        first_s=list(first),
        last_s=list(last),
        prompt_tokens=[100] * len(intended),
        output_tokens=list(output),
        first_chunk_tokens=list(first_chunk),
        chunks=list(output),
        outcome=list(outcome),
    )


def test_ttft_counts_from_the_intended_send_time():
    assert StageData.from_wire(samples()).ttft_s == pytest.approx([0.5, 0.2, 1.0])


def test_tpot_is_per_token_after_those_of_the_first_chunk():
    data = StageData.from_wire(samples(first_chunk=(1, 1, 3)))
    assert data.tpot_s[0] == pytest.approx(0.1)
    assert data.tpot_s[2] == pytest.approx(0.5)


def test_a_request_of_one_token_has_no_tpot_and_cannot_miss_it():
    data = StageData.from_wire(samples())
    assert math.isnan(data.tpot_s[1])
    assert data.misses(Slo(tpot_s=1e-9)).tolist() == [True, False, True]


def test_e2e_ends_with_the_last_token():
    assert StageData.from_wire(samples()).e2e_s == pytest.approx([1.5, 0.2, 2.0])


def test_missing_one_target_is_a_miss_of_the_joint_event():
    data = StageData.from_wire(samples())
    assert data.misses(Slo(ttft_s=0.6, tpot_s=0.2)).tolist() == [False, False, True]
    assert data.misses(Slo(e2e_s=1.6, ttft_s=0.3)).tolist() == [True, False, True]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMEOUT])
def test_a_request_that_failed_is_a_miss_however_fast_it_failed(outcome):
    data = StageData.from_wire(samples(outcome=(outcome, Outcome.OK, Outcome.OK)))
    assert data.misses(Slo(ttft_s=100.0)).tolist() == [True, False, False]
    assert data.ok.tolist() == [False, True, True]


def test_without_targets_only_failures_are_misses():
    assert not StageData.from_wire(samples()).misses(Slo()).any()


def test_warm_up_is_cut_by_intended_send_time():
    warm = StageData.from_wire(samples(warmup_s=1.0)).after_warmup()
    assert len(warm) == 2
    assert warm.intended_s.tolist() == [1.0, 2.0]


def test_rows_are_put_in_the_order_of_intended_send_times():
    data = StageData.from_wire(samples(intended=(2.0, 0.0, 1.0), output=(7, 8, 9)))
    assert data.intended_s.tolist() == [0.0, 1.0, 2.0]
    assert data.output_tokens.tolist() == [8, 9, 7]


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        StageData.from_wire(samples().model_copy(update={"first_s": [1.0]}))


def test_no_requests_give_no_misses():
    empty = StageData.from_wire(samples((), (), (), (), (), ()))
    assert empty.misses(Slo(ttft_s=1.0)).size == 0
    assert np.asarray(empty.after_warmup().ttft_s).size == 0
