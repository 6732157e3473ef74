"""What a stage of the present setting shows of the choice's improvement."""

from __future__ import annotations

import pytest

from kneekeeper.api.tuning_run import StageKind, Verdict
from kneekeeper.domain.certify import SAFETY
from kneekeeper.domain.improvement import Improvement, shown_improvement
from tests.unit.stage_builders import summary


def baseline(verdict: Verdict, **values: object):
    return summary("baseline-1", StageKind.BASELINE, verdict=verdict, **values)


def test_a_present_setting_that_breaks_the_slo_shows_what_was_asked_for():
    assert shown_improvement(10.0, 10.0 / 1.05, baseline(Verdict.FAIL), 5) == Improvement(True, 5, None)


def test_one_whose_backlog_grew_promises_less_than_what_it_completed():
    stage = baseline(Verdict.FAIL, saturated=True, requests_per_second=2.0, requests=400, failed=0)
    assert shown_improvement(10.0, 9.5, stage, 5).percent == 362  # 10 / (2 (1 + 1.645 / 20)) - 1


def test_few_completions_show_less():
    few, many = (
        shown_improvement(10.0, 9.5, baseline(Verdict.FAIL, saturated=True, requests_per_second=2.0, requests=n), 5)
        for n in (20, 2000)
    )
    assert few.percent is not None
    assert many.percent is not None
    assert few.percent < many.percent < 400


@pytest.mark.parametrize("values", [{"requests": 3, "failed": 3}, {"requests_per_second": 0.0}, {"requests": 4}])
def test_a_backlog_that_tells_nothing_of_the_throughput_shows_what_was_asked_for(values):
    stage = baseline(Verdict.FAIL, saturated=True, **({"requests_per_second": 9.0} | values))
    assert shown_improvement(10.0, 9.5, stage, 5).percent == 5


def test_a_present_setting_that_holds_the_slo_can_promise_its_rate_and_no_improvement_is_shown():
    assert shown_improvement(10.0, 9.6, baseline(Verdict.PASS), 5) == Improvement(False, None, 9.6 / SAFETY)


def test_a_stage_that_was_not_decided_shows_nothing():
    assert shown_improvement(10.0, 9.5, baseline(Verdict.INCONCLUSIVE), 5) == Improvement(False, None, None)
