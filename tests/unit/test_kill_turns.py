"""The long test of kills: every moment of both workloads has its turn, and lives get far."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from e2e.wide.kill_turns import AHEAD, MOMENTS, STEPS, WEIGHTS, Moment, Turns, ends_life

LOOKS = 8
"""At each step; a kill takes place at most of them, as some victim is always there."""


class Lives:
    """Both workloads go through their steps again and again, and begin anew when they are ended."""

    def __init__(self, turns: Turns, looks: dict[str, int]) -> None:
        self.turns, self.looks = turns, looks
        self.at = {workload: [0, 0] for workload in STEPS}
        self.ended: Counter[Moment] = Counter()
        self.finished: Counter[str] = Counter()

    def look(self) -> None:
        now = {workload: Moment(workload, STEPS[workload][step]) for workload, (step, _) in self.at.items()}
        turn = self.turns.next({moment: list(WEIGHTS) for moment in now.values()})
        if turn is not None:
            self.turns.was_killed(*turn)
            moment, path = turn
            if path in ends_life(moment):
                self.ended[moment] += 1
                self.at[moment.workload] = [0, 0]
        for workload, (step, seen) in self.at.items():
            if seen + 1 < self.looks.get(STEPS[workload][step], LOOKS):
                self.at[workload] = [step, seen + 1]
            elif step + 1 < len(STEPS[workload]):
                self.at[workload] = [step + 1, 0]
            else:
                self.at[workload] = [0, 0]
                self.finished[workload] += 1
                self.turns.begins_anew(workload)


@pytest.mark.parametrize("seed", range(5))
def test_all_moments_are_met_about_as_often_also_where_some_are_short(seed: int):
    turns = Turns(random.Random(seed))
    lives = Lives(turns, {"Choose": 1, "Write": 1, "CleanUp": 1})
    while turns.killed.total() < 200:
        lives.look()
    at = turns.by_moment()
    assert set(at) == set(MOMENTS)
    assert max(at.values()) <= 200 / len(MOMENTS) + AHEAD + 1
    assert all(at[moment] >= 4 for moment in MOMENTS if moment.step not in ("Choose", "Write", "CleanUp"))
    assert set(turns.by_path()) == set(WEIGHTS)
    assert lives.finished.keys() == STEPS.keys()
    assert all(count <= 4 for count in lives.ended.values()), "ends go round"


def test_a_path_that_ends_a_life_is_taken_where_its_end_is_drawn_only():
    turns = Turns(random.Random(0))
    moment = Moment("lender", "Certify")
    for _ in range(100):
        turn = turns.next({moment: ends_life(moment)})
        if turn is not None:
            break
        turns.begins_anew("lender")
    assert turn is not None
    assert turn[0] == moment
    turns.was_killed(*turn)
    assert turns.next({moment: ends_life(moment)}) is None


def test_a_moment_that_is_ahead_waits_for_the_others():
    turns = Turns(random.Random(0))
    moment = Moment("applier", "Ramp")
    for _ in range(AHEAD):
        turns.was_killed(moment, "operator")
    assert turns.next({moment: ["operator"]}) is not None, "their mean counts too"
    turns.was_killed(moment, "operator")
    assert turns.next({moment: ["operator"]}) is None


def test_the_table_has_all_kills():
    turns = Turns(random.Random(0))
    for moment in (*MOMENTS, Moment("applier", "Withdraw")):
        turns.was_killed(moment, "operator")
    *rows, last = turns.table().splitlines()
    assert len(rows) == 1 + len(MOMENTS) + 1
    assert last.split()[0] == "all"
    assert last.split()[-1] == str(len(MOMENTS) + 1)
