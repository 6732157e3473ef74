"""The server under test as a process on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kneekeeper.local.guard import GRACE_S

LOG_TAIL_BYTES = 64 * 1024
_STOP_LIMIT_S = 3 * GRACE_S


class ServerProcess:
    """One server under its guard. `exit_code` is None while it runs; `log` is what it printed."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self.log = process, log

    @classmethod
    async def start(cls, words: Sequence[str], log: Path) -> Self:
        """Start the command; that it cannot be started shows as its exit. Raises OSError for the guard's own start."""
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kneekeeper.local.guard",
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=sink,
                stderr=asyncio.subprocess.STDOUT,
                env=os.environ.copy(),
                process_group=0,  # a Ctrl-C in the terminal is kneekeeper's to handle
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Of the guard."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def log_tail(self) -> str:
        """The end of what it printed."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")

    async def stop(self) -> None:
        """End it with all its children; returns when they are gone."""
        pipe = self._process.stdin
        assert pipe is not None
        pipe.close()
        try:
            async with asyncio.timeout(_STOP_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
