import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.availability import availability_of
from kneekeeper.domain.certify import verdict_of
from kneekeeper.domain.samples import Bools, StageData


def requests(failed: int, count: int) -> Bools:
    ok = np.ones(count, dtype=np.bool_)
    ok[np.linspace(0, count - 1, failed).astype(int)] = False
    return ok


@pytest.mark.parametrize(
    ("failed", "count", "promised", "verdict"),
    [
        (0, 700, 0.99, Verdict.PASS),
        (0, 100, 0.99, Verdict.INCONCLUSIVE),  # up to 3% may fail
        (20, 700, 0.99, Verdict.FAIL),
        (5, 700, 0.99, Verdict.INCONCLUSIVE),
        (20, 700, 0.95, Verdict.PASS),
        (0, 700, 1.0, Verdict.PASS),
        (1, 700, 1.0, Verdict.FAIL),
        (0, 0, 1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_failures_are_held_against_the_exact_bounds(failed: int, count: int, promised: float, verdict: Verdict):
    assert availability_of(requests(failed, count), promised).verdict is verdict


@given(st.integers(0, 50), st.integers(51, 2000), st.floats(0.5, 0.999))
def test_no_stage_passes_that_has_seen_more_failures_than_are_allowed(failed: int, count: int, promised: float):
    if availability_of(requests(failed, count), promised).verdict is Verdict.PASS:
        assert failed / count < 1 - promised


def stage(ok: Bools) -> StageData:
    times = np.arange(ok.size, dtype=np.float64)
    ones = np.ones(ok.size, dtype=np.int64)
    return StageData(0.0, times, times + 0.1, times + 0.2, ones, ones, ones, ok)


def test_a_certification_needs_both_the_targets_and_the_availability():
    promised = Slo(ttft_s=0.5, availability=1.0)
    ok, once = stage(requests(0, 1000)), stage(requests(1, 1000))
    assert verdict_of(ok, promised).verdict is Verdict.PASS
    assert verdict_of(once, Slo(ttft_s=0.5)).verdict is Verdict.PASS
    failed = verdict_of(once, promised)
    assert failed.verdict is Verdict.FAIL
    assert failed.message.startswith("1 of 1000 requests failed")
    assert verdict_of(ok, Slo(ttft_s=0.05, availability=0.9)).verdict is Verdict.FAIL  # the targets alone
