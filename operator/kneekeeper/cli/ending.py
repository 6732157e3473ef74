"""How commands end: with which exit code, and with what they could not do."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How the commands end that work with a cluster."""

    DONE = 0
    NO = 1
    """An answer, and a bad one: what it means stands in the command's help."""
    CANNOT = 2
    """Wrong usage, or the cluster could not be read or written; the message has the next step."""
    INTERRUPTED = 130


class CannotError(Exception):
    """What was asked for cannot be done. The message has the next step; the exit code is 2."""
