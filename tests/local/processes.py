"""Commands of kneekeeper as a user runs them, and what is left of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kneekeeper.cli.main import main

PYTHON = sys.executable
_MARK = "TEST_OF_KNEEKEEPER"


@dataclass
class Command:
    """One `kneekeeper …` in a session of its own, as from a terminal; its output grows in a file."""

    directory: Path
    hardware: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._output = self.directory / f"output-{self.mark}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        with self._output.open("wb") as sink:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "kneekeeper.cli.main", *words],
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=os.environ
                | {
                    _MARK: self.mark,
                    "KNEEKEEPER_SIM": json.dumps(self.hardware),
                    "XDG_STATE_HOME": str(self.directory / "state"),
                },
                start_new_session=True,
            )

    def run(self, *words: str, within_s: float = 200.0) -> int:
        self.start(*words)
        return self.wait(within_s)

    def wait(self, within_s: float = 200.0) -> int:
        assert self.process is not None
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.interrupt()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            raise AssertionError(f"not done within {within_s} s: {self.output()[-2000:]}") from None

    def interrupt(self) -> None:
        """As Ctrl-C in a terminal: the signal goes to the foreground process group."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def until(self, text: str, within_s: float = 60.0) -> None:
        """Until the text was printed."""
        assert self.process is not None
        end = time.monotonic() + within_s
        while text not in self.output():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < end, self.output()
            time.sleep(0.05)

    def left_behind(self) -> list[str]:
        """The command lines of all processes that this command has started, at any depth, and that still run."""
        return _left_of(self.mark)

    def running(self) -> list[str]:
        """As `left_behind`, at once."""
        return marked_processes(f"{_MARK}={self.mark}")


@dataclass(frozen=True)
class Here:
    """Commands in this very process, which saves starting one; `left_behind` is as that of `Command`."""

    directory: Path
    capsys: pytest.CaptureFixture[str]
    mark: str

    def run(self, *words: str) -> Finished:
        code = main(words)
        out, err = self.capsys.readouterr()
        return Finished(code, out + err)

    def left_behind(self) -> list[str]:
        return _left_of(self.mark)


@dataclass(frozen=True)
class Finished:
    """How a command ended, and all that it printed."""

    code: int
    output: str


def here(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, hardware: dict[str, Any]
) -> Here:
    """Commands whose working directory and state are in `directory`."""
    mark = uuid.uuid4().hex
    monkeypatch.chdir(directory)
    monkeypatch.setenv(_MARK, mark)
    monkeypatch.setenv("KNEEKEEPER_SIM", json.dumps(hardware))
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
    return Here(directory, capsys, mark)


def _left_of(mark: str) -> list[str]:
    end = time.monotonic() + 10.0
    while (found := marked_processes(f"{_MARK}={mark}")) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def marked_processes(variable: str) -> list[str]:
    """Command lines of the running processes that have this variable in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def stage_lines(output: str) -> list[str]:
    """The names of the decided stages, in the order in which they were told."""
    return [line.split(":")[0].strip() for line in output.splitlines() if line.startswith("  ") and ": " in line]


def engine(*flags: str) -> Sequence[str]:
    """The simulated engine's command."""
    return (PYTHON, "-m", "kneekeeper.engine", "serve", "tiny", "--host", "127.0.0.1", *flags)
