"""The benchmark of a day with two mixes: its arrivals, its bookkeeping, and its page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.day.__main__ import Outcome, Row, _kept, _page
from benchmarks.day.cases import CASES
from benchmarks.day.requests import EVENING, HOUR_S, MORNING, QUIET_SHARE, draw, rates
from benchmarks.day.serving import RESOLUTION, Day, Switch, World, carried
from kneekeeper.api.model import Setting

CASE = next(case for case in CASES if case.name == "documents")
BUSIEST = (0.05, 0.01)


def test_each_mix_comes_in_its_hours_and_most_in_their_middle():
    hours = np.linspace(0, 24, 24 * 60, endpoint=False)
    day, night = rates((2.0, 3.0), hours, np.ones_like)
    by_day = (hours >= MORNING) & (hours < EVENING)
    assert day[~by_day].max() == night[by_day].max() == 0
    assert hours[np.argmax(day)] == pytest.approx(14, abs=0.1)
    assert hours[np.argmax(night)] == pytest.approx(2, abs=0.1)
    assert day[by_day][0] == pytest.approx(QUIET_SHARE * 2.0)
    drawn = draw(CASE, (0.5, 0.5), seed=1)
    of_day = (drawn.arrival_s >= MORNING * HOUR_S) & (drawn.arrival_s < EVENING * HOUR_S)
    assert np.array_equal(of_day, drawn.mix == 0)


def test_what_is_carried_is_the_largest_multiple_that_holds():
    asked: list[float] = []

    def serve(factor: float) -> Day:
        asked.append(factor)
        return Day((1000, 1000), (1000, 1000 if factor < 0.7 else 0))

    assert carried(serve) == pytest.approx(0.7, rel=2 * RESOLUTION)
    assert carried(lambda _: Day((1000,), (0,))) == 0
    assert not Day((1000, 1000), (1000, 989)).holds


def test_a_quiet_day_is_inside_its_targets_but_for_what_a_live_switch_counts_as_missed():
    world = World(CASE, BUSIEST)
    setting = Setting(max_num_seqs=32, max_num_batched_tokens=2048)
    single, live = world.single(setting), world.live([Switch(0, setting), Switch(MORNING, setting)])
    assert single.inside == single.requests
    assert live.requests == single.requests
    assert sum(live.inside) <= sum(single.inside)


def test_a_case_that_is_not_measured_anew_stays_on_the_page(tmp_path: Path):
    row = Row("32/2048, alone", 0.5, (99.0, 98.0))
    told = Outcome(CASE.name, 7, (1.0, 2.0), (row, row), "32/2048", 0.5, 0.6, 0.6, 20.0, 20.0)
    page = tmp_path / "day.md"
    page.write_text(_page({CASE.name: told}, json.dumps({CASE.name: asdict(told)})))
    [kept] = _kept(page).values()
    assert kept.rows == told.rows
    assert "+20.0%" in page.read_text()
    page.write_text('```json\n{"requests": 1, "best_single": "96/256"}\n```')
    assert _kept(page) == {}
