"""The pure parts of the soak: that what happens is drawn well, and that a leak or a broken promise would show."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.observe.engine_metrics import engine_metrics, parse_samples
from tests.soak.calendar import DAY_S, What, calendar
from tests.soak.law import served, slowness
from tests.soak.production import Production, Promise, Tally
from tests.soak.report import MOST_RSS_GROWTH_MIB, Report
from tests.soak.usage import Day
from tests.soak.users import Lengths, Users

SETTING = Setting(max_num_seqs=16, max_num_batched_tokens=2048)
LENGTHS = Lengths(prompt=200, output=60)
PROMISE = Promise(SETTING, per_s=12.5, ttft_s=2.5, tpot_s=0.025, measured=LENGTHS)


def production(busiest_per_s: float, promise: Promise | None = PROMISE, slow: float = 1.0) -> Production:
    return Production(Users("chat", busiest_per_s), LENGTHS, SETTING, slow, replicas=2, promise=promise)


@pytest.mark.parametrize(("days", "profiles"), [(0.5, 1), (14, 20)])
def test_everything_happens_however_short_the_weeks_are(days, profiles):
    events = calendar(days, profiles, seed=3)
    assert {event.what for event in events} == set(What)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert all(event.profile is None or event.profile < profiles for event in events)
    assert events == calendar(days, profiles, seed=3)
    assert events != calendar(days, profiles, seed=4)


def test_users_come_by_day_and_fewer_at_weekends():
    users = Users("chat", 10.0)
    hours = [users.rate(hour * 3600.0) for hour in range(24)]
    assert max(hours) > 2 * min(hours)
    assert users.rate(5.5 * DAY_S) < 0.8 * users.rate(0.5 * DAY_S)


def test_a_slow_engine_takes_longer_for_everything():
    fast, slow = served(SETTING, 1.0, 5.0, LENGTHS), served(SETTING, 1.5, 5.0, LENGTHS)
    assert (slow.ttft_s > fast.ttft_s).all()
    assert (slow.tpot_s > fast.tpot_s).all()
    assert slowness("vllm:1", "m") != slowness("vllm:2", "m")


def test_a_promise_that_holds_is_kept_all_day():
    of = production(20.0)
    of.advance(DAY_S)
    assert of.tally.promised > 500_000
    assert of.tally.broken == of.tally.moved == of.tally.beyond == 0


def test_a_promise_is_broken_where_a_p99_is_beyond_its_target():
    of = production(20.0, replace(PROMISE, tpot_s=0.012))
    of.advance(DAY_S)
    assert 0 < of.tally.broken < of.tally.promised


def test_more_requests_than_were_promised_break_no_promise():
    of = production(60.0)
    of.advance(DAY_S)
    assert of.tally.beyond > 0
    assert of.tally.broken == 0


def test_requests_that_grew_longer_are_counted_apart():
    of = production(20.0)
    of.lengths = LENGTHS.times(1.6)
    of.advance(DAY_S)
    assert of.tally.promised == 0
    assert of.tally.moved > 0


def test_a_pod_counts_from_its_own_start_and_no_reading_falls():
    of = production(20.0)
    of.pod_starts("127.0.1.0")
    of.advance(DAY_S)
    of.pod_starts("127.0.1.1")
    of.advance(DAY_S + 600)
    older, newer = (
        engine_metrics(parse_samples(of.metrics(address))).generation_tokens_total
        for address in ("127.0.1.0", "127.0.1.1")
    )
    assert newer < older / 50
    assert newer > 0


DAY = Day(1, 100, 200, 300.0, 20, 8, 10, 5, 1, 1000, 1e6, 0.0)


def report(*days: Day, **parts: object) -> Report:
    whole = Report(
        days=len(days),
        profiles=1,
        by_day=days,
        outcomes=Counter(),
        triggers=Counter(),
        happened=Counter(),
        tally=Tally(promised=1e6),
        left=(),
        remembered_left=0,
        kills=1,
        api_faults=1,
        most_kept=0,
        bugs=(),
    )
    return replace(whole, **parts)  # type: ignore[arg-type]


def test_weeks_without_growth_are_good():
    days = [replace(DAY, day=day, open_files=20 + day % 3, rss_mib=300.0 + day % 2) for day in range(1, 15)]
    assert report(*days).is_good


@pytest.mark.parametrize(
    "grows",
    [{"open_files": 1}, {"tasks": 1}, {"rss_mib": 1.5 * MOST_RSS_GROWTH_MIB / 8}],
    ids=str,
)
def test_what_grows_a_little_each_day_is_a_leak(grows):
    [(name, step)] = grows.items()
    days = [replace(DAY, day=day, **{name: getattr(DAY, name) + day * step}) for day in range(1, 15)]
    assert not report(*days).is_good


@pytest.mark.parametrize(
    "parts",
    [
        {"left": ("a Secret",)},
        {"remembered_left": 1},
        {"most_kept": 1},
        {"bugs": ("a bug",)},
        {"tally": Tally(promised=1e6, broken=2e4)},
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_what_is_left_or_broken_is_not_good(parts):
    assert not report(DAY, DAY, **parts).is_good
