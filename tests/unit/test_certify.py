import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import LogNormal, Open, Outcome, Samples, Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import (
    MIN_FAIL_REQUESTS,
    MIN_PASS_REQUESTS,
    SequentialTest,
    pass_floor,
    verdict_of,
)
from kneekeeper.domain.samples import StageData
from tests.unit.small_server import SmallServer, run_load

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


def test_without_a_floor_no_misses_pass_before_400_requests_but_never_before_299():
    verdict, requests = decide([False] * 2000, step=1, min_pass_requests=1)
    assert verdict == Verdict.PASS
    assert 299 <= requests <= 400


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
    assert result.upper_share < 0.01


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
    assert result.upper_share == 1.0


def test_large_batches_must_be_watched_for_longer():
    assert pass_floor(32) == MIN_PASS_REQUESTS
    assert pass_floor(512) > MIN_PASS_REQUESTS
    data = stage([False] * 1000)
    assert verdict_of(data, SLO, pass_floor(32)).verdict == Verdict.PASS
    assert verdict_of(data, SLO, pass_floor(512)).verdict == Verdict.INCONCLUSIVE


def test_a_growing_backlog_is_not_passed_at_the_offered_rate():
    """The claim behind SAFETY: where L just holds the target, 1.2 L is passed in at most 5% of the runs."""
    server = SmallServer(
        lambda decoding, kv, prefill: 6e-3 + 3e-5 * decoding + 4e-8 * kv + 3.3e-5 * prefill,
        Setting(max_num_seqs=64, max_num_batched_tokens=2048),
    )
    prompts = LogNormal(mean=800, sigma=1, maximum=8000)
    outputs = LogNormal(mean=200, sigma=0.7, maximum=2000)
    just_holds = 14.3  # requests/s at which 1% of 20,000 requests miss 0.5 s
    slo = Slo(ttft_s=0.5)

    def verdict(rate: float, seed: int) -> Verdict:
        _, samples = run_load(server, Open(rate=rate), prompts, outputs, requests=1500, seed=seed)
        return verdict_of(StageData.from_wire(samples), slo, pass_floor(64)).verdict

    above = [verdict(1.2 * just_holds, seed) for seed in range(80)]
    below = [verdict(0.8 * just_holds, seed) for seed in range(10)]
    assert above.count(Verdict.PASS) <= 4
    assert below.count(Verdict.FAIL) == 0
    assert below.count(Verdict.PASS) >= 8
