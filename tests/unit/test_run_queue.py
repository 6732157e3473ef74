"""A bounded number of runs measures at the same time, and no namespace keeps the others waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.run_queue import WAITING_LOOKS_PER_S, RunQueue
from kneekeeper.handlers.ticks import RUN


def run(name: str, namespace: str = "a") -> Key:
    return Key(RUN, namespace, name)


def queue(*names: str, most: int = 2, namespace: str = "a") -> RunQueue:
    made = RunQueue(most)
    for number, name in enumerate(names):
        made.told(run(name, namespace), f"2026-01-01T00:00:{number:02}Z", begun=False, held=False)
    return made


def test_the_oldest_begin_and_the_others_wait_in_order():
    made = queue("1", "2", "3", "4")
    assert [made.ahead(run(name)) for name in "1234"] == [0, 0, 1, 2]


def test_runs_that_have_begun_take_the_places_until_they_are_gone():
    made = queue("1", "2", "3")
    for name in "12":
        made.told(run(name), "2026-01-01T00:00:00Z", begun=True, held=False)
    assert [made.ahead(run(name)) for name in "123"] == [0, 0, 1]
    made.gone(run("1"))
    assert made.ahead(run("3")) == 0


def test_one_that_is_held_by_something_else_keeps_nobody_waiting():
    made = queue("1", "2", "3", most=1)
    made.told(run("1"), "2026-01-01T00:00:00Z", begun=False, held=True)
    assert [made.ahead(run(name)) for name in "123"] == [0, 0, 1]


def test_a_namespace_with_many_runs_does_not_keep_one_with_few_waiting():
    made = queue(*(f"{number:02}" for number in range(50)))
    other = run("late", "b")
    made.told(other, "2026-02-01T00:00:00Z", begun=False, held=False)
    assert made.ahead(other) == 0
    assert made.ahead(run("00")) == 0
    assert made.ahead(run("01")) == 1


def test_when_a_place_is_free_the_next_one_is_known():
    made = queue("1", "2", "3")
    made.told(run("1"), "2026-01-01T00:00:00Z", begun=True, held=False)
    assert made.next_up() == [run("2")]
    made.gone(run("1"))
    assert made.next_up() == [run("2"), run("3")]


def test_a_run_that_nobody_told_of_may_begin():
    assert queue("1", "2", "3").ahead(run("unknown")) == 0


def test_those_that_wait_are_looked_at_at_a_bounded_rate():
    assert queue(*map(str, range(60))).pause_s() == 60 / WAITING_LOOKS_PER_S
    assert queue().pause_s() == 0


RUNS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=20)


@given(runs=RUNS, most=st.integers(1, 5))
def test_no_more_may_begin_than_there_are_places_and_some_may_when_there_are(runs, most):
    made = RunQueue(most)
    keys = [run(str(number), namespace) for number, (namespace, _, _) in enumerate(runs)]
    for number, (key, (_, begun, held)) in enumerate(zip(keys, runs, strict=True)):
        made.told(key, f"{number:03}", begun=begun, held=held and not begun)
    under_way = sum(begun for _, begun, _ in runs)
    free = [key for key, (_, begun, held) in zip(keys, runs, strict=True) if not begun and not held]
    may = [key for key in free if made.ahead(key) == 0]
    assert len(may) == min(len(free), max(0, most - under_way))
