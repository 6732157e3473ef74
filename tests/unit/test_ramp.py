from typing import Any

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageSummary
from kneekeeper.domain.ramp import LadderEnd, RampLimit, is_far_past, levels, ramp_end, ramp_limit
from tests.unit.stage_builders import summary

LIMIT = RampLimit(64, LadderEnd.USER_BOUND, "bound")


def ramp(*throughputs: float, **latencies: float) -> list[StageSummary]:
    values: dict[str, Any] = {"p99_tpot": 0.01, "p99_ttft": 0.01, **latencies}
    return [
        summary(f"ramp-{2**i}", users=2**i, output_tokens_per_second=x, **values) for i, x in enumerate(throughputs)
    ]


def reason(slo: Slo, stages: list[StageSummary], limit: RampLimit = LIMIT) -> LadderEnd | None:
    end = ramp_end(slo, limit, stages)
    return None if end is None else end.reason


def test_levels_double_and_end_at_the_limit():
    assert list(levels(64, [])) == [1, 2, 4, 8, 16, 32, 64]
    assert list(levels(48, [])) == [1, 2, 4, 8, 16, 32, 48]
    assert list(levels(1, [])) == [1]


def test_a_level_is_left_out_where_throughput_grows_in_proportion():
    far_from_the_knee = ramp(100, 195)
    assert list(levels(64, far_from_the_knee)) == [1, 2, 8, 16, 32, 64]
    assert list(levels(64, [*far_from_the_knee, *ramp(0, 0, 0, 760)[3:]])) == [1, 2, 8, 32, 64]
    assert list(levels(64, ramp(100, 170))) == [1, 2, 4, 8, 16, 32, 64]


def test_no_level_is_left_out_below_the_last():
    assert list(levels(8, ramp(100, 195))) == [1, 2, 4, 8]


def test_the_lowest_of_the_three_limits_ends_a_ramp():
    assert ramp_limit(512, 64, None, 1000.0).reason == LadderEnd.CEILING
    assert ramp_limit(32, 64, None, 1000.0).reason == LadderEnd.USER_BOUND
    held = ramp_limit(512, 64, 20_500, 1000.0)
    assert (held.reason, held.users) == (LadderEnd.KV_LIMIT, 20)
    assert ramp_limit(512, 64, 10, 1000.0).users == 1


def test_a_ramp_goes_on_while_throughput_grows():
    assert reason(Slo(tpot_s=1.0), ramp(100, 190, 350)) is None
    assert reason(Slo(tpot_s=1.0), []) is None


def test_a_ramp_ends_when_two_doublings_gain_little():
    assert reason(Slo(tpot_s=1.0), ramp(100, 190, 195)) is None
    assert reason(Slo(tpot_s=1.0), ramp(100, 190, 195, 199)) == LadderEnd.FLATTENED
    assert reason(Slo(tpot_s=1.0), ramp(100, 190, 195, 250)) is None


def test_a_last_level_that_is_no_doubling_is_judged_per_doubling():
    stages = [*ramp(100, 190, 350, 600, 900, 1200), summary("ramp-40", users=40, output_tokens_per_second=1240.0)]
    assert reason(Slo(tpot_s=1.0), stages) is None


def test_a_ramp_ends_when_two_levels_are_far_past_every_target():
    slo = Slo(tpot_s=0.01, ttft_s=0.1)
    assert reason(slo, ramp(100, 190, p99_tpot=0.016, p99_ttft=0.16)) == LadderEnd.PAST_TARGETS
    assert reason(slo, ramp(100, 190, p50_tpot=0.01, p99_tpot=0.016, p99_ttft=0.05)) is None
    assert reason(slo, ramp(100, p50_tpot=0.01, p99_tpot=0.016, p99_ttft=0.16)) is None


def test_a_ramp_ends_when_most_requests_miss_any_target():
    slo = Slo(tpot_s=0.01, ttft_s=0.1)
    assert reason(slo, ramp(100, p50_tpot=0.011)) == LadderEnd.PAST_TARGETS
    assert reason(slo, ramp(100, p50_tpot=0.01, p50_ttft=0.11)) == LadderEnd.PAST_TARGETS
    assert reason(slo, ramp(100, 190, p50_tpot=0.009, p50_ttft=0.09, p99_tpot=0.03)) is None


def test_an_unsteady_level_at_which_most_requests_miss_ends_the_ramp_as_well():
    slo, limit = Slo(tpot_s=0.01), LIMIT
    unsteady = summary("ramp-2", users=2, p50_tpot=0.012)
    assert ramp_end(slo, limit, ramp(100, p50_tpot=0.005)) is None
    end = ramp_end(slo, limit, ramp(100, p50_tpot=0.005), [unsteady])
    assert end is not None
    assert end.reason == LadderEnd.PAST_TARGETS


def test_nothing_is_far_past_targets_that_are_not_set():
    assert not is_far_past(summary(p99_tpot=9.0, p99_ttft=9.0), Slo())
    assert is_far_past(summary(p99_tpot=9.0), Slo(tpot_s=1.0))


def test_a_ramp_ends_at_its_limit():
    stages = ramp(100, 190, 350, 600, 900, 1200, 1500)
    assert reason(Slo(tpot_s=1.0), stages) == LadderEnd.USER_BOUND
    assert reason(Slo(tpot_s=1.0), stages[:-1]) is None


def test_a_ramp_ends_where_whole_requests_take_longer_than_their_target():
    stages = [
        summary(
            f"ramp-{users}",
            users=users,
            output_tokens_per_second=100.0 * users,
            p50_e2e=0.1 * users,
            p99_e2e=0.2 * users,
        )
        for users in (1, 2, 4, 8, 16)
    ]
    limit = RampLimit(512, LadderEnd.USER_BOUND, "")
    assert ramp_end(Slo(e2e_s=1.0), limit, stages[:3]) is None
    end = ramp_end(Slo(e2e_s=1.0), limit, stages)
    assert end is not None
    assert end.reason is LadderEnd.PAST_TARGETS
