"""Values are taken only where the engine can run with them, and lapse when nobody is heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.livetune.limits import (
    ABOVE_START,
    BELOW_ONE,
    HEARTBEAT_TIMEOUT_S,
    TOKENS_BELOW_LEAST,
    TOKENS_BELOW_SEQUENCES,
    Envelope,
    Governor,
    Limits,
)

START = Limits(64, 2048)
ENVELOPE = Envelope(START, START)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def governed(envelope: Envelope = ENVELOPE) -> tuple[Governor, Clock]:
    clock = Clock()
    return Governor(envelope, clock), clock


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(65, 2048), ABOVE_START),
        (Limits(64, 2049), ABOVE_START),
        (Limits(0, 2048), BELOW_ONE),
        (Limits(1, 0), BELOW_ONE),
        (Limits(-5, -5), BELOW_ONE),
        (Limits(32, 31), TOKENS_BELOW_SEQUENCES),
    ],
)
def test_what_no_step_can_run_with_is_refused_and_changes_nothing(limits: Limits, reason: str):
    governor, _ = governed()
    refusal = governor.ask(limits)
    assert refusal is not None
    assert refusal.reason == reason
    assert governor.next_step(0) == START
    assert governor.standing().changes == 0


def test_a_decode_step_of_speculating_sequences_must_fit():
    envelope = Envelope(START, START, tokens_per_sequence=4)
    assert envelope.refusal(Limits(16, 64)) is None
    refusal = envelope.refusal(Limits(17, 64))
    assert refusal is not None
    assert refusal.reason == TOKENS_BELOW_SEQUENCES


def test_a_budget_with_which_a_prompt_would_wait_for_ever_is_refused_with_the_reason():
    envelope = Envelope(START, START, least_tokens=512, least_tokens_because="a prompt must fit into one step")
    refusal = envelope.refusal(Limits(8, 511))
    assert refusal is not None
    assert refusal.reason == TOKENS_BELOW_LEAST
    assert "a prompt must fit into one step" in refusal.message
    assert envelope.refusal(Limits(8, 512)) is None


@given(st.integers(-3, 200), st.integers(-3, 5000), st.integers(1, 8), st.integers(1, 2048))
def test_what_is_taken_lies_within_the_start_values_and_lets_every_sequence_decode(
    seqs: int, tokens: int, per_sequence: int, least: int
):
    limits = Limits(seqs, tokens)
    taken = Envelope(START, START, per_sequence, least).refusal(limits) is None
    assert taken == (1 <= seqs <= 64 and max(least, seqs * per_sequence) <= tokens <= 2048)


def test_a_change_is_in_force_from_the_next_step_on():
    governor, _ = governed()
    governor.next_step(0)
    assert governor.ask(Limits(8, 512)) is None
    assert governor.standing().in_force == START
    assert governor.next_step(5) == Limits(8, 512)
    standing = governor.standing()
    assert (standing.in_force, standing.running, standing.steps, standing.changes) == (Limits(8, 512), 5, 2, 1)


def test_a_lower_limit_has_settled_once_enough_requests_have_ended():
    governor, clock = governed()
    governor.next_step(0)
    governor.ask(Limits(8, 512))
    settled = []
    for running in (9, 8, 9):
        clock.now_s += 0.5
        governor.next_step(running)
        settled.append(governor.standing().settled_s)
    assert settled == [None, 1.0, 1.0]
    governor.ask(Limits(4, 512))
    assert governor.standing().settled_s is None


def test_nothing_is_in_force_before_the_first_step():
    governor, _ = governed()
    governor.ask(Limits(8, 512))
    assert governor.standing().in_force is None


def test_asking_for_what_is_wanted_already_is_no_change():
    governor, _ = governed()
    governor.ask(Limits(8, 512))
    governor.ask(Limits(8, 512))
    assert governor.standing().changes == 1


def test_without_a_heartbeat_the_start_values_come_back():
    governor, clock = governed()
    governor.ask(Limits(8, 512))
    clock.now_s += HEARTBEAT_TIMEOUT_S
    assert governor.next_step(0) == Limits(8, 512)
    clock.now_s += 0.1
    assert governor.next_step(0) == START
    assert governor.standing().fall_backs == 1


def test_reading_is_a_heartbeat_and_so_is_a_refused_change():
    governor, clock = governed()
    governor.ask(Limits(8, 512))
    for heard in (governor.standing, lambda: governor.ask(Limits(999, 512))):
        clock.now_s += HEARTBEAT_TIMEOUT_S - 1
        heard()
    clock.now_s += HEARTBEAT_TIMEOUT_S - 1
    assert governor.next_step(0) == Limits(8, 512)


def test_a_late_heartbeat_brings_nothing_back_and_the_lapse_is_told():
    governor, clock = governed()
    governor.ask(Limits(8, 512))
    clock.now_s += HEARTBEAT_TIMEOUT_S + 1
    standing = governor.standing()
    assert (standing.wanted, standing.fall_backs) == (START, 1)
    assert governor.next_step(0) == START


def test_approved_values_hold_from_the_start_and_whenever_nobody_is_heard():
    approved = Limits(32, 1024)
    governor, clock = governed(Envelope(START, approved))
    assert governor.next_step(0) == approved
    governor.ask(START)
    clock.now_s += HEARTBEAT_TIMEOUT_S + 1
    assert governor.next_step(0) == approved
