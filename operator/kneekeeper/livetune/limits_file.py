"""Limits from a file that the kubelet keeps up to date from a ConfigMap: how production is switched.

Nobody has to be heard, so nothing lapses: what the file says holds. A file that is missing or cannot be taken changes
nothing, be it because the ConfigMap is gone, not there yet, or wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from .environment import FILE
from .limits import HEARTBEAT_TIMEOUT_S, Envelope, Governor
from .messages import MAX_BODY_BYTES, MalformedMessage, read_limits

_LOG = logging.getLogger("vllm.kneekeeper_livetune")

LOOK_EVERY_S = 1.0


def governor_of(envelope: Envelope, environment: Mapping[str, str]) -> Governor:
    """One that follows a file lets nothing lapse."""
    return Governor(envelope, time.monotonic, None if environment.get(FILE) else HEARTBEAT_TIMEOUT_S)


def follow_file(governor: Governor, environment: Mapping[str, str]) -> None:
    """Where the environment names one."""
    file = environment.get(FILE)
    if file:
        LimitsFile(Path(file), governor).follow()


class LimitsFile:
    """One file, and the governor that is asked for what it says."""

    def __init__(self, path: Path, governor: Governor) -> None:
        self._path = path
        self._governor = governor
        self._seen: bytes | None = None

    def look(self) -> None:
        """Ask for what it says, if that is new. Raises nothing that a file may cause."""
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_BODY_BYTES + 1)
        except OSError:
            return
        if text == self._seen:
            return
        self._seen = text
        try:
            if len(text) > MAX_BODY_BYTES:
                raise MalformedMessage(f"it has more than {MAX_BODY_BYTES} bytes")
            refusal = self._governor.ask(read_limits(text))
        except MalformedMessage as error:
            _LOG.warning("the file with the limits is not taken: %s", error)
            return
        if refusal is not None:
            _LOG.warning("the limits in the file are not taken: %s", refusal.message)

    def follow(self) -> None:
        """Look now, and then every second for as long as the process lives."""
        self.look()
        threading.Thread(target=self._look_on, name="kneekeeper-limits-file", daemon=True).start()

    def _look_on(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_EVERY_S):
            self.look()
