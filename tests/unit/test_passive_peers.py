"""Replicas beside their peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kneekeeper.domain.passive.peers import Outlier, Peer, compare
from tests.unit.history_builders import day, history

H100, L40S = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"
LOADS = day(5, 60)


def peers(**odd: Any) -> list[Peer]:
    """Three ordinary replicas, and one of this kind."""
    usual = [Peer(f"chat-{i}", H100, (history(LOADS, pod=f"chat-{i}", seed=i),)) for i in range(3)]
    return [*usual, Peer("odd", H100, (history(LOADS, pod="odd", seed=9, **odd),))]


def outliers(members: Sequence[Peer]) -> dict[str, Outlier]:
    return {each.pod: each.outlier for each in compare(members) if each.outlier is not None}


def test_like_replicas_do_not_stand_out_and_have_the_same_speed():
    compared = compare(peers())
    assert not [each for each in compared if each.outlier is not None]
    assert all(each.slowness is not None and 0.97 < each.slowness < 1.03 for each in compared)


def test_a_slow_one_stands_out_with_how_much():
    assert outliers(peers(slowness=1.3)) == {"odd": Outlier.SLOW}
    assert "30%" in compare(peers(slowness=1.3))[-1].message


def test_one_that_is_hardly_slower_does_not_stand_out():
    assert not outliers(peers(slowness=1.07))


def test_one_that_is_slow_for_some_hours_stands_out_as_that():
    hours = np.where((np.arange(LOADS.size) // 12) % 5 == 0, 1.5, 1.0)
    assert outliers(peers(slowness=hours)) == {"odd": Outlier.SLOW_AT_TIMES}


def test_a_faster_one_is_no_trouble():
    assert not outliers(peers(slowness=0.8))


def test_one_that_gets_longer_requests_is_not_called_a_slow_machine():
    assert outliers(peers(slowness=1.3, longer=1.6)) == {"odd": Outlier.OTHER_REQUESTS}


def test_another_product_is_named_and_not_compared_with_the_rest():
    members = [*peers()[:3], Peer("other", L40S, (history(LOADS, pod="other", slowness=2.0),))]
    compared = compare(members)[-1]
    assert (compared.outlier, compared.slowness) == (Outlier.OTHER_PRODUCT, None)
    assert L40S in compared.message


def test_of_two_replicas_neither_is_the_odd_one():
    assert not outliers(peers(slowness=1.5)[2:])


def test_a_slow_rank_of_a_replica_is_named():
    ranks = tuple(history(LOADS, pod="odd", rank=str(r), slowness=1.4 if r == 2 else 1.0, seed=r) for r in range(4))
    compared = compare([Peer("odd", H100, ranks)])[0]
    assert compared.outlier == Outlier.UNEVEN_RANKS
    assert "ranks 2 " in compared.message


def test_replicas_without_history_are_passed_over():
    assert outliers([*peers(), Peer("new", H100, ())]) == {}
