"""Keeps one server from outliving kneekeeper: `python -m kneekeeper.local.guard COMMAND …`.

Runs the command in a process group of its own and ends that whole group, children included, when the command
has ended, or when this process's standard input closes, which also happens when kneekeeper was killed. It is no
session: Linux shares the cores out between sessions first (autogroups), and an engine whose threads poll would then
keep the load generator waiting for tenths of a second on a machine of few cores.
Ends with the command's exit code; 128 + n after signal n, 127 when it cannot be started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

GRACE_S = 15.0
"""From SIGTERM to SIGKILL: vLLM ends in a few seconds."""

_NOT_STARTED = 127
_POLL_S = 0.05


def guard(command: Sequence[str]) -> int:
    """Run the command to its end. Returns the exit code to end with."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Handled, not ignored: the command would inherit that. Kneekeeper ends it in its own time.
        signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return _NOT_STARTED
    threading.Thread(target=_end_with_owner, args=(process,), daemon=True).start()
    code = process.wait()
    _end_group(process.pid)
    return code if code >= 0 else 128 - code


def _end_with_owner(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGKILL)


def _end_group(group: int) -> None:
    """End what the command's own process left behind."""
    _signal_group(group, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while time.monotonic() < end and _signal_group(group, 0):
        time.sleep(_POLL_S)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """False where the group has no process any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
