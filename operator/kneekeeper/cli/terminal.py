"""What the commands that measure have in common: a console, and an event loop that a Ctrl-C cancels."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from rich.console import Console

_PLAIN_WIDTH = 140  # columns of a table in a file or a pipe
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Result = TypeVar("_Result")


class Interrupted(Exception):
    """A signal asked for the end; everything that was started has been ended."""


def open_console() -> Console:
    """Standard output: as wide as the terminal, and wide enough for tables elsewhere."""
    return Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)


def run_until_signal(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run it. The first SIGINT, SIGTERM or SIGHUP cancels it; from then on they do nothing. Raises Interrupted.

    So whoever presses Ctrl-C twice still gets what was measured, and is told how to go on.
    """
    # A child that ends while it is being killed is told there as unknown; it is neither news nor trouble.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        return asyncio.run(_cancelled_by_signals(work))
    except asyncio.CancelledError:
        raise Interrupted from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, _Result]) -> _Result:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asked = False

    def end() -> None:
        nonlocal asked
        if not asked:
            asked = True
            _ignore(loop)
            task.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end)
    try:
        return await work
    finally:
        if not asked:
            for number in _ENDING:
                loop.remove_signal_handler(number)


def _ignore(loop: asyncio.AbstractEventLoop) -> None:
    """Also after the loop's end, which would put back what Python does at a Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    for number in _ENDING:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
