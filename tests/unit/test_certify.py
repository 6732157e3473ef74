from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Closed, Open, Replay
from kneekeeper.api.stage import Outcome, Samples, Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import (
    LONGEST_FORECAST,
    MIN_FAIL_REQUESTS,
    MIN_PASS_REQUESTS,
    RELAXATION_REQUESTS,
    Claim,
    SequentialTest,
    pass_floor,
    verdict_of,
)
from kneekeeper.domain.samples import StageData

SLO = Slo(ttft_s=1.0)


def stage(missed: list[bool], *, warmup: int = 0) -> StageData:
    """A stage whose requests come every 10 ms; a missed one has a TTFT of 2 s."""
    intended = [0.01 * i for i in range(len(missed))]
    first = [t + (2.0 if miss else 0.1) for t, miss in zip(intended, missed, strict=True)]
    return StageData.from_wire(
        Samples(
            warmup_s=0.01 * warmup,
            intended_s=intended,
            sent_s=intended,
            first_s=first,
            last_s=[t + 1 for t in first],
            prompt_tokens=[10] * len(missed),
            output_tokens=[10] * len(missed),
            first_chunk_tokens=[1] * len(missed),
            chunks=[10] * len(missed),
            outcome=[Outcome.OK] * len(missed),
        )
    )


def decide(missed: list[bool], step: int = 5, min_pass_requests: int = MIN_PASS_REQUESTS) -> tuple[Verdict | None, int]:
    test = SequentialTest(min_pass_requests=min_pass_requests)
    for start in range(0, len(missed), step):
        test.update(missed[start : start + step])
        if test.verdict is not None:
            return test.verdict, test.requests
    return None, test.requests


def shares_of_verdicts(
    share: float, requests: int, runs: int, seed: int, min_pass_requests: int = MIN_PASS_REQUESTS
) -> dict[Verdict | None, float]:
    rng = np.random.default_rng(seed)
    found = [decide((rng.random(requests) < share).tolist(), 10, min_pass_requests)[0] for _ in range(runs)]
    return {verdict: found.count(verdict) / runs for verdict in set(found)}


def test_without_misses_it_passes_at_its_floor():
    assert decide([False] * 2000) == (Verdict.PASS, MIN_PASS_REQUESTS)


def test_without_a_floor_no_misses_pass_before_500_requests_but_never_before_299():
    verdict, requests = decide([False] * 2000, step=1, min_pass_requests=1)
    assert verdict == Verdict.PASS
    assert 299 <= requests <= 500


def test_a_server_that_misses_every_request_fails_at_once():
    assert decide([True] * 100, step=1) == (Verdict.FAIL, MIN_FAIL_REQUESTS)


def test_one_hiccup_at_the_start_is_no_fail():
    assert decide([True] * 3 + [False] * 400)[0] is None


def test_peeking_passes_a_share_at_the_edge_in_at_most_5_percent_of_runs():
    shares = shares_of_verdicts(0.01, 3000, 200, seed=1, min_pass_requests=1)
    assert shares.get(Verdict.PASS, 0) <= 0.07  # 5% and the noise of 200 runs
    assert shares.get(Verdict.FAIL, 0) <= 0.07


@pytest.mark.parametrize(("share", "verdict"), [(0.001, Verdict.PASS), (0.03, Verdict.FAIL)])
def test_a_clear_share_is_decided_rightly_in_nearly_all_runs(share, verdict):
    assert shares_of_verdicts(share, 3000, 60, seed=2)[verdict] >= 0.95


def test_misses_in_clusters_weigh_less_than_scattered_ones():
    scattered = [i % 25 == 0 for i in range(250)]  # 10 of 250
    clustered = [False] * 120 + [True] * 10 + [False] * 120
    assert decide(scattered, step=250)[0] == Verdict.FAIL
    assert decide(clustered, step=250)[0] is None


def test_the_first_verdict_stands():
    test = SequentialTest()
    test.update([True] * 50)
    test.update([False] * 10_000)
    assert test.verdict == Verdict.FAIL
    assert test.requests_to_decide() == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), max_size=200))
def test_a_decided_test_needs_no_more_requests_and_an_undecided_one_does(misses):
    test = SequentialTest()
    test.update(misses)
    assert (test.requests_to_decide() == 0) == (test.verdict is not None)


def test_the_forecast_of_an_untouched_test_is_what_a_clean_stage_takes():
    assert SequentialTest().requests_to_decide() == pytest.approx(MIN_PASS_REQUESTS, rel=0.15)


def test_a_share_at_the_edge_is_forecast_to_take_very_long():
    test = SequentialTest()
    test.update([i % 100 == 0 for i in range(500)])
    assert test.requests_to_decide() > 20_000


def test_a_clean_stage_passes():
    result = verdict_of(stage([False] * 1000), SLO)
    assert result.verdict == Verdict.PASS
    assert (result.requests, result.misses) == (1000, 0)
    assert result.bounds.upper < 0.01


def test_a_stage_that_the_agent_stopped_on_a_pass_passes_when_warm_up_takes_a_few_more():
    assert verdict_of(stage([False] * (MIN_PASS_REQUESTS + 5), warmup=20), SLO).verdict == Verdict.PASS


def test_a_short_stage_is_inconclusive_and_says_how_much_longer():
    result = verdict_of(stage([False] * 200), SLO)
    assert result.verdict == Verdict.INCONCLUSIVE
    assert 300 <= result.requests_to_decide <= 500
    assert str(result.requests_to_decide) in result.message


def test_misses_during_warm_up_do_not_count():
    assert verdict_of(stage([True] * 50 + [False] * 700, warmup=50), SLO).verdict == Verdict.PASS


def test_a_stage_without_requests_is_inconclusive():
    result = verdict_of(stage([]), SLO)
    assert result.verdict == Verdict.INCONCLUSIVE
    assert (result.bounds.lower, result.bounds.upper) == (0.0, 1.0)


def test_large_batches_bursts_and_long_waits_must_be_watched_for_longer():
    poisson, bursty = Open(rate=10), Open(rate=10, burstiness=0.25)
    assert pass_floor(poisson, SLO, 32) == 3 * RELAXATION_REQUESTS
    assert pass_floor(poisson, SLO, 512) == 6 * 512
    assert pass_floor(bursty, SLO, 32) == 6 * RELAXATION_REQUESTS
    assert pass_floor(Open(rate=200), SLO) == 2000, "an overload of 10% needs 10 s to be 1 s late"
    assert pass_floor(Open(rate=200), Slo(tpot_s=0.05)) == pass_floor(poisson, SLO), "a backlog does not move TPOT"
    assert pass_floor(Replay(rate=200), SLO) == 2000, "a replay queues as any open loop"
    assert pass_floor(Replay(speed=1.0), SLO) == pass_floor(Open(rate=1), SLO), "its rate is not known here"
    assert pass_floor(Closed(users=8), SLO) == MIN_PASS_REQUESTS, "a closed loop cannot queue without limit"


def test_no_stage_passes_below_its_floor():
    data = stage([False] * 1500)
    assert verdict_of(data, SLO, 1000).verdict == Verdict.PASS
    assert verdict_of(data, SLO, 2500).verdict == Verdict.INCONCLUSIVE


def test_failed_requests_are_misses_however_fast_the_rest_is():
    """One in twenty is refused at once."""
    refused = [i % 20 == 0 for i in range(1000)]
    times = [0.01 * i for i in range(1000)]
    data = StageData.from_wire(
        Samples(
            warmup_s=0.0,
            intended_s=times,
            sent_s=times,
            first_s=[t + 0.05 for t in times],
            last_s=[t + 0.05 for t in times],
            prompt_tokens=[10] * 1000,
            output_tokens=[0 if failed else 10 for failed in refused],
            first_chunk_tokens=[1] * 1000,
            chunks=[1] * 1000,
            outcome=[Outcome.ERROR if failed else Outcome.OK for failed in refused],
        )
    )
    result = verdict_of(data, SLO)
    assert (result.verdict, result.misses) == (Verdict.FAIL, 50)


@given(st.integers(0, 2**32), st.floats(0, 0.05), st.lists(st.integers(1, 400), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_the_verdict_does_not_depend_on_how_requests_are_fed(seed, share, pieces):
    misses = (np.random.default_rng(seed).random(sum(pieces)) < share).tolist()
    whole, fed = SequentialTest(), SequentialTest()
    whole.update(misses)
    for start, size in zip(np.cumsum([0, *pieces[:-1]]), pieces, strict=True):
        fed.update(misses[start : start + size])
    assert (fed.verdict, fed.requests) == (whole.verdict, whole.requests)


def test_the_planned_end_decides_by_the_exact_bounds_what_peeking_leaves_open():
    few = [i % 250 == 100 for i in range(1500)]
    test = SequentialTest()
    test.update(few)
    assert test.verdict is None
    result = verdict_of(stage(few), SLO)
    assert result.verdict == Verdict.PASS
    assert result.bounds.upper < 0.01
    many = [i % 60 == 7 for i in range(900)]
    test = SequentialTest()
    test.update(many)
    assert test.verdict is None
    assert verdict_of(stage(many), SLO).verdict == Verdict.FAIL


def clusters(of: int, every: int, requests: int = 3000) -> list[bool]:
    return [i % every < of for i in range(requests)]


def test_clusters_are_held_against_more_where_less_than_the_offered_load_is_promised():
    """A stage with four queues in 3,000 requests: 0.53% missed, so few clusters that 1% is not excluded."""
    data = stage(clusters(4, 750))
    assert verdict_of(data, SLO).verdict == Verdict.INCONCLUSIVE
    promised = verdict_of(data, SLO, claim=Claim.PROMISED)
    assert promised.verdict == Verdict.PASS
    assert promised.bounds.upper > 0.01
    assert "at the promised rate" in promised.message


def test_scattered_misses_are_held_against_the_allowed_share_whatever_is_promised():
    """They may have nothing to do with the load: at a lower one they would be as many."""
    for every in (90, 140):
        data = stage([i % every == 7 for i in range(3000)])
        assert verdict_of(data, SLO, claim=Claim.PROMISED).verdict == verdict_of(data, SLO).verdict


def test_more_than_four_fifths_of_the_allowed_share_never_pass():
    assert verdict_of(stage(clusters(13, 1500)), SLO, claim=Claim.PROMISED).verdict == Verdict.INCONCLUSIVE


def test_failures_are_not_excused_by_the_load():
    data = stage(clusters(4, 750))
    failing = replace(data, ok=~data.misses(SLO))
    assert verdict_of(failing, SLO, claim=Claim.PROMISED).verdict == Verdict.INCONCLUSIVE


def test_exact_bounds_stand_beside_the_verdict_and_widen_with_clusters():
    scattered = verdict_of(stage([i % 100 == 0 for i in range(1000)]), SLO)
    clustered = verdict_of(stage([i < 10 for i in range(1000)]), SLO)
    for result in (scattered, clustered):
        assert result.bounds.lower < 0.01 < result.bounds.upper
        assert f"{result.bounds.upper:.2%}" in result.message
    assert scattered.bounds.inflation == 1.0
    assert clustered.bounds.upper > 2 * scattered.bounds.upper


def test_what_is_not_steady_does_not_pass_but_may_fail():
    sentence = "Ended because 100 s have passed; the requests in flight drift."
    drifting = verdict_of(stage([False] * 2000), SLO, unsteady=sentence)
    assert drifting.verdict == Verdict.INCONCLUSIVE
    assert drifting.requests_to_decide > 0
    assert sentence in drifting.message
    assert verdict_of(stage([i % 10 == 0 for i in range(500)]), SLO, unsteady=sentence).verdict == Verdict.FAIL


@pytest.mark.parametrize("every", [50, 200, 400])
def test_as_many_more_requests_as_forecast_decide(every):
    def missed(count: int) -> list[bool]:
        return [i % every == every // 2 for i in range(count)]

    seen = 400
    short = verdict_of(stage(missed(seen)), SLO)
    assert short.verdict == Verdict.INCONCLUSIVE
    needed = short.requests_to_decide
    assert 0 < needed < LONGEST_FORECAST
    assert verdict_of(stage(missed(seen + needed // 4)), SLO).verdict == Verdict.INCONCLUSIVE
    assert verdict_of(stage(missed(seen + needed + every)), SLO).verdict != Verdict.INCONCLUSIVE


def test_a_share_at_the_edge_says_that_longer_stages_do_not_help():
    assert "too close to 1%" in verdict_of(stage([i % 100 == 0 for i in range(1000)]), SLO).message
