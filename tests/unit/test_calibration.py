import pytest

from kneekeeper.api.stage import Fixed
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.boundary import Boundary
from kneekeeper.domain.calibration import MOST_SCALE, calibrated
from kneekeeper.domain.knee import fit_throughput
from kneekeeper.domain.prediction import Predictor, Traffic
from kneekeeper.domain.stats import Interval
from kneekeeper.domain.steptime import StepTime
from tests.unit.stage_builders import summary

EVERYWHERE = Boundary(None, met_everywhere=True, met_nowhere=False)
STEP_TIME = StepTime(8e-3, 1e-4, 5e-5)
TRAFFIC = Traffic(Fixed(value=200), 200.0, Fixed(value=100), 100.0, 100, 1.0)


def ramp(count: int = 7) -> list[StageSummary]:
    return [
        summary(
            f"ramp-{n}",
            users=n,
            requests_per_second=n / (1 + n / 20),
            output_tokens_per_second=100 * n / (1 + n / 20),
            p50_tpot=0.01 + 5e-4 * n,
            p99_tpot=0.012 + 6e-4 * n,
            p50_ttft=0.03,
        )
        for n in (2**k for k in range(count))
    ]


def calibrate(stages: list[StageSummary], boundary: Boundary = EVERYWHERE) -> Predictor:
    found = calibrated(stages, fit_throughput(stages), boundary, STEP_TIME, TRAFFIC)
    assert found is not None
    return found


def open_loop(p99_ttft: float, p99_tpot: float = 1e-3, kind: StageKind = StageKind.OPEN) -> StageSummary:
    rate = 5.0
    return summary("open-1", kind, users=None, offered_requests_per_second=rate, p99_ttft=p99_ttft, p99_tpot=p99_tpot)


def test_the_overhead_is_what_a_lone_request_takes_beyond_its_steps():
    assert calibrate(ramp()).overhead_s == pytest.approx(0.03 - (8e-3 + 200 * 5e-5))


def test_the_throughput_is_the_fit_or_the_levels_themselves():
    assert calibrate(ramp()).throughput[15] == pytest.approx(16 / (1 + 16 / 20))
    single = calibrate(ramp(1))
    assert list(single.throughput) == [pytest.approx(1 / 1.05)]


def test_without_a_ramp_or_a_step_time_there_is_nothing_to_predict_from():
    assert calibrated([], fit_throughput([]), EVERYWHERE, STEP_TIME, TRAFFIC) is None
    assert calibrated(ramp(), fit_throughput(ramp()), EVERYWHERE, None, TRAFFIC) is None


def test_stages_that_were_faster_than_predicted_lower_nothing():
    found = calibrate([*ramp(), open_loop(1e-3)])
    assert (found.ttft_scale, found.tpot_scale) == (1.0, 1.0)


def test_a_short_stage_must_be_slower_than_chance_and_is_believed_up_to_a_limit():
    predicted = calibrate(ramp()).predict(ramp()[0].setting, 5.0).p99_ttft_s
    assert calibrate([*ramp(), open_loop(1.1 * predicted)]).ttft_scale == 1.0
    assert 1.0 < calibrate([*ramp(), open_loop(1.5 * predicted)]).ttft_scale < 1.5
    assert calibrate([*ramp(), open_loop(99.0)]).ttft_scale == MOST_SCALE


def test_a_failed_certification_is_believed_as_measured():
    predicted = calibrate(ramp()).predict(ramp()[0].setting, 5.0).p99_ttft_s
    certified = open_loop(1.3 * predicted, kind=StageKind.CERTIFY)
    assert calibrate([*ramp(), certified]).ttft_scale == pytest.approx(1.3)


def test_saturated_and_void_stages_teach_nothing():
    slow = open_loop(99.0, 99.0)
    for stage in (slow.with_changes(saturated=True), slow.with_changes(verdict=Verdict.VOID)):
        assert calibrate([*ramp(), stage]).ttft_scale == 1.0


def test_an_unsure_boundary_makes_cautious():
    unsure = Boundary(Interval(20.0, 16.0, 25.0), met_everywhere=False, met_nowhere=False)
    very_unsure = Boundary(Interval(20.0, 2.0, 60.0), met_everywhere=False, met_nowhere=False)
    assert calibrate(ramp(), unsure).caution == pytest.approx(1.25)
    assert calibrate(ramp(), very_unsure).caution == 1.5
    assert calibrate(ramp()).caution == 1.0
