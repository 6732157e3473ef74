"""What takes minutes is told when it begins and once in a while until it ends; who does not ask hears nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, active_count

import pytest

from e2e.cluster import progress
from e2e.cluster.progress import tell_with, told


class Listener:
    """Keeps what is told, and notices when it is told again."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.again = Event()

    def say(self, text: str) -> None:
        self.heard.append(text)
        if len(self.heard) > 1:
            self.again.set()


@pytest.fixture
def listener() -> Iterator[Listener]:
    log = logging.getLogger(progress.__name__)
    before = (list(log.handlers), log.level, log.propagate)
    found = Listener()
    tell_with(found.say)
    yield found
    log.handlers, log.level, log.propagate = before


def test_what_is_quick_is_told_once(listener: Listener):
    with told("Building helm."):
        pass
    assert listener.heard == ["Building helm."]


def test_what_takes_long_is_told_again_until_it_ends_or_fails(listener: Listener):
    threads = active_count()
    with suppress(ValueError), told("Building helm.", remind_s=0.001):
        assert listener.again.wait(60)
        raise ValueError("the build failed")
    assert listener.heard[:2] == ["Building helm.", "Still: Building helm."]
    assert active_count() == threads


def test_who_does_not_ask_hears_nothing(capfd: pytest.CaptureFixture[str]):
    with told("Building helm."):
        pass
    assert capfd.readouterr() == ("", "")
