from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kneekeeper.api.stage import Limits, Slo, StageState
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.cli.argument_types import duration, whole
from kneekeeper.domain.certify import LONGEST_FORECAST
from kneekeeper.domain.load_level import LoadLevel
from kneekeeper.local.next_step import next_step
from tests.unit.level_builders import level_of

SLO = Slo(ttft_s=1.0)


def limits(requests: int = 60, duration_s: float = 120.0) -> Limits:
    return Limits(min_requests=1, max_requests=requests, max_duration_s=duration_s)


def short(**values: Any) -> LoadLevel:
    """60 requests in 12 s, of which 5 were warm-up, and 1,220 more would tell."""
    level = replace(level_of(55, slo=SLO), warmup_requests=5, requests_to_decide=1220, duration_s=12.0)
    return replace(level, **values)


@pytest.mark.parametrize("level", [level_of(2000, slo=SLO), level_of(2000, slo=SLO, slow=200), level_of(2000)])
def test_what_was_told_needs_no_next_step(level: LoadLevel) -> None:
    assert next_step(level, limits()) == ""


def test_a_level_that_its_requests_ended_is_given_as_many_as_will_tell() -> None:
    assert next_step(short(), limits(duration_s=600.0)) == "Give --requests 2000."


def test_a_level_that_its_time_ended_is_given_as_much_as_will_tell() -> None:
    assert next_step(short(), limits(requests=3000, duration_s=12.0)) == "Give --duration 7m."


def test_both_are_given_where_both_are_too_little() -> None:
    assert next_step(short(), limits()) == "Give --requests 2000 --duration 7m."


def test_an_open_loop_may_also_be_too_fast() -> None:
    level = short(users=None, offered_requests_per_s=5.0)
    assert next_step(level, limits(duration_s=600.0)) == "Give --requests 2000, or try a lower --rate."


def test_more_requests_do_not_help_where_the_share_is_too_close() -> None:
    assert next_step(short(requests_to_decide=LONGEST_FORECAST), limits()) == "Give other targets in --slo."


def test_without_a_single_request_after_warm_up_the_time_is_doubled() -> None:
    level = short(requests=0, warmup_requests=0, requests_to_decide=650)
    assert next_step(level, limits(requests=3000)) == "Give --duration 4m."


def test_a_rate_beyond_what_the_server_carries_has_to_be_lower() -> None:
    assert next_step(level_of(40, users=None, slo=SLO, state=StageState.SATURATED), limits()) == "Give a lower --rate."


def test_what_was_broken_off_has_only_to_go_on_and_what_failed_has_another_next_step() -> None:
    assert next_step(short(state=StageState.CANCELLED), limits()) == "Let it run to its end."
    assert next_step(short(state=StageState.FAILED), limits()) == ""


def test_a_level_that_its_own_test_ended_too_early_is_measured_again() -> None:
    level = short(requests=700, requests_to_decide=10)
    assert next_step(level, limits(requests=3000, duration_s=600.0)) == "Measure again."


@pytest.mark.parametrize("requests", [1, 40, 299, 5000, 900_000])
@pytest.mark.parametrize("duration_s", [0.3, 59.0, 61.0, 5000.0])
def test_the_flags_take_what_is_told(requests: int, duration_s: float) -> None:
    level = short(requests=requests, duration_s=duration_s, verdict=Verdict.INCONCLUSIVE)
    words = next_step(level, limits(requests=requests, duration_s=duration_s)).removesuffix(".").split()
    assert whole("8")(words[words.index("--requests") + 1]) > requests
    assert duration(words[words.index("--duration") + 1]) > duration_s
