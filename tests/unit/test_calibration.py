import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Fixed, Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.calibration import MOST_SCALE, Scales, calibrate
from kneekeeper.domain.twin import Law
from kneekeeper.domain.twin.stages import twin_stage
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.stage_builders import summary

LAW = Law(base_s=8e-3, per_sequence_s=1e-4, per_prefill_token_s=5e-5)
TRAFFIC = TwinTraffic(Fixed(value=200), Fixed(value=100))
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)


def open_loop(times: float = 1.0, kind: StageKind = StageKind.OPEN, requests: int = 3000) -> StageSummary:
    """A stage whose latencies are `times` what the twin says."""
    stage = summary("open-1", kind, setting=SETTING, users=None, offered_requests_per_second=5.0, requests=requests)
    twin = twin_stage(stage, TRAFFIC)
    assert twin is not None
    predicted = dict(zip(twin.statistics, twin.predict(LAW), strict=True))
    return stage.with_changes(**{name: times * 2.718281828 ** float(value) for name, value in predicted.items()})


def test_stages_as_predicted_raise_nothing():
    assert calibrate([open_loop()], TRAFFIC, LAW) == Scales()


def test_stages_that_were_faster_than_predicted_lower_nothing():
    assert calibrate([open_loop(0.5)], TRAFFIC, LAW) == Scales()


@pytest.mark.parametrize("kind", [StageKind.OPEN, StageKind.CERTIFY, StageKind.BASELINE])
def test_what_an_open_loop_was_slower_than_predicted_raises_predictions(kind):
    scales = calibrate([open_loop(1.3, kind)], TRAFFIC, LAW)
    assert 1.1 < scales.tpot <= 1.31
    assert 1.1 < scales.ttft <= 1.31


def test_a_few_requests_raise_less_than_many():
    few, many = (calibrate([open_loop(1.3, requests=n)], TRAFFIC, LAW) for n in (40, 3000))
    assert few.ttft < many.ttft


def test_no_stage_raises_beyond_what_is_believed():
    assert calibrate([open_loop(10)], TRAFFIC, LAW).tpot == MOST_SCALE


def test_void_and_saturated_stages_say_nothing():
    void = open_loop(2).with_changes(verdict=Verdict.VOID)
    assert calibrate([void, open_loop(2).with_changes(saturated=True)], TRAFFIC, LAW) == Scales()


def test_targets_are_tightened_by_scale_and_margin_and_stay_unset():
    tightened = Scales(ttft=1.2, tpot=1.1).tightened(Slo(ttft_s=1.2, tpot_s=0.11), 0.0)
    assert tightened.ttft_s == pytest.approx(1.0)
    assert tightened.tpot_s == pytest.approx(0.1)
    assert tightened.e2e_s is None
