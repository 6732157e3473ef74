from __future__ import annotations

import pytest

from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.hearing import LONGEST_UNHEARD_S, Hearing
from tests.unit.test_agenda import Clock

CHAT, OTHER = Key("ServingProfile", "prod", "chat"), Key("ServingProfile", "prod", "other")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hearing(clock: Clock) -> Hearing:
    return Hearing(clock)


def test_what_events_told_is_heard(hearing, clock):
    hearing.told(CHAT, 2)
    hearing.read(CHAT, 2)
    clock.now_s += 10 * LONGEST_UNHEARD_S
    assert not hearing.is_deaf()


def test_a_change_that_was_read_and_never_told_makes_it_deaf_after_a_while(hearing, clock):
    hearing.told(CHAT, 1)
    hearing.read(CHAT, 2)
    clock.now_s += LONGEST_UNHEARD_S
    hearing.read(CHAT, 3)
    assert not hearing.is_deaf()
    clock.now_s += 1
    assert hearing.is_deaf()


def test_an_event_that_comes_late_ends_it(hearing, clock):
    hearing.told(CHAT, 1)
    hearing.read(CHAT, 2)
    clock.now_s += 2 * LONGEST_UNHEARD_S
    hearing.told(CHAT, 2)
    assert not hearing.is_deaf()


def test_events_of_one_object_say_nothing_of_another(hearing, clock):
    hearing.read(CHAT, 2)
    clock.now_s += 2 * LONGEST_UNHEARD_S
    hearing.told(OTHER, 1)
    assert hearing.is_deaf()


def test_a_look_that_read_less_than_was_told_already_is_no_sign_of_deafness(hearing, clock):
    hearing.told(CHAT, 3)
    hearing.read(CHAT, 2)
    clock.now_s += 2 * LONGEST_UNHEARD_S
    assert not hearing.is_deaf()


def test_an_object_that_is_gone_is_not_waited_for(hearing, clock):
    hearing.read(CHAT, 2)
    hearing.forget(CHAT)
    clock.now_s += 2 * LONGEST_UNHEARD_S
    assert not hearing.is_deaf()
