"""Production's limits come from a file; what is missing or wrong in it changes nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kneekeeper.livetune import limits_file
from kneekeeper.livetune.environment import (
    APPROVED,
    FILE,
    STARTED,
    STARTED_OTHERWISE,
    is_wanted,
    limits_in,
    limits_text,
    start_refusal,
)
from kneekeeper.livetune.limits import HEARTBEAT_TIMEOUT_S, Envelope, Governor, Limits
from kneekeeper.livetune.limits_file import LimitsFile
from kneekeeper.livetune.messages import MAX_BODY_BYTES, write_limits

START, APPROVED_LIMITS = Limits(64, 2048), Limits(16, 512)


class Place:
    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.path = folder / "limits"
        self.governor = Governor(Envelope(START, APPROVED_LIMITS, least_tokens=100), lambda: self.now_s, None)
        self.file = LimitsFile(self.path, self.governor)

    def says(self, text: bytes) -> Limits:
        self.path.write_bytes(text)
        self.file.look()
        return self.governor.next_step(0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_approved_values_hold_until_the_file_says_others(place: Place):
    place.file.look()
    assert place.governor.next_step(0) == APPROVED_LIMITS
    assert place.says(write_limits(Limits(8, 256))) == Limits(8, 256)
    assert place.says(b'{"max_num_batched_tokens": 2048,\n "max_num_seqs": 64}\n') == START


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"max_num_seqs: 4",
        b"[4, 256]",
        b'{"max_num_seqs": 4}',
        b'{"max_num_seqs": "4", "max_num_batched_tokens": 256}',
        b'{"max_num_seqs": 4.5, "max_num_batched_tokens": 256}',
        b'{"max_num_seqs": 4, "max_num_batched_tokens": 256, "more": 1}',
        b"\xff\xfe\x00",
        write_limits(Limits(65, 2048)),
        write_limits(Limits(64, 32)),
        write_limits(Limits(4, 99)),
        write_limits(Limits(0, 256)),
        write_limits(Limits(4, 256)) + b" " * MAX_BODY_BYTES + b"x",
    ],
)
def test_a_file_that_no_engine_can_take_leaves_the_last_good_one(place: Place, text: bytes):
    assert place.says(write_limits(Limits(8, 256))) == Limits(8, 256)
    assert place.says(text) == Limits(8, 256)
    assert place.says(write_limits(Limits(9, 256))) == Limits(9, 256)


def test_a_file_that_goes_away_leaves_the_last_good_one(place: Place):
    place.says(write_limits(Limits(8, 256)))
    place.path.unlink()
    place.file.look()
    assert place.governor.next_step(0) == Limits(8, 256)
    place.path.mkdir()
    place.file.look()
    assert place.governor.next_step(0) == Limits(8, 256)


def test_nothing_lapses_however_long_nobody_is_heard(place: Place):
    place.says(write_limits(Limits(8, 256)))
    place.now_s = 1000 * HEARTBEAT_TIMEOUT_S
    assert place.governor.next_step(0) == Limits(8, 256)
    assert place.governor.standing().fall_backs == 0


def test_it_is_looked_at_again_and_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits_file, "LOOK_EVERY_S", 0.01)
    place.path.write_bytes(write_limits(Limits(8, 256)))
    place.file.follow()
    assert place.governor.next_step(0) == Limits(8, 256)
    # As the kubelet does it: another file in its place.
    new = place.path.with_name("new")
    new.write_bytes(write_limits(Limits(4, 128)))
    new.rename(place.path)
    until = time.monotonic() + 30
    while place.governor.next_step(0) != Limits(4, 128):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_whoever_starts_the_engine_with_other_values_gets_those():
    environment = {FILE: "/limits", STARTED: limits_text(64, 2048), APPROVED: limits_text(16, 512)}
    assert start_refusal(environment, START) is None
    refusal = start_refusal(environment, Limits(32, 2048))
    assert refusal is not None
    assert refusal.reason == STARTED_OTHERWISE
    assert start_refusal({}, Limits(32, 2048)) is None
    assert limits_in(environment, APPROVED) == APPROVED_LIMITS


def test_it_does_nothing_without_a_file_or_a_token():
    assert not is_wanted({})
    assert not is_wanted({APPROVED: "1,2", STARTED: "1,2", FILE: ""})
    assert is_wanted({FILE: "/limits"})
