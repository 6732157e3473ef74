"""The files that are mounted into the agent: a trace and real prompts. What they hold leaves only as numbers.

`KNEEKEEPER_TRACE` and `KNEEKEEPER_PROMPTS` name a file, or a folder with one file in it (a volume's hidden files
do not count).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from kneekeeper.api.sources import PromptsReport, SourcesReport, SourceState, TraceReport
from kneekeeper.api.stage import PromptSource, StageSpec
from kneekeeper.domain.prompts import Prompt, PromptError, read_prompts, summarise_prompts
from kneekeeper.domain.trace_summary import summarise_trace
from kneekeeper.domain.traces import TraceError, TraceWindow, read_trace, take_window
from kneekeeper.domain.workload import Stream, generator, window_start

TRACE = "KNEEKEEPER_TRACE"
PROMPTS = "KNEEKEEPER_PROMPTS"

LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""As long as the longest request; a longer line means a file that has no lines."""


class SourceError(Exception):
    """A trace or prompts that cannot be read. The message names the file, line and column, and the next step."""


def find_file(path: Path | None, what: str) -> Path:
    """The file at `path`, or the only one in that folder. Raises SourceError."""
    if path is None:
        raise SourceError(f"the stage asks for {what} and none is mounted; declare it in spec.workload")
    try:
        if not path.is_dir():
            path.stat()
            return path
        files = sorted(each for each in path.iterdir() if not each.name.startswith(".") and each.is_file())
    except OSError as error:
        raise SourceError(f"the {what} at {path.name} cannot be read: {error.strerror}; check its reference") from None
    if len(files) != 1:
        raise SourceError(f"the source of the {what} holds {len(files)} files; name one by its key")
    return files[0]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time. Raises SourceError."""
    number = 0
    try:
        with path.open("rb", buffering=1 << 20) as file:
            while line := file.readline(LONGEST_LINE_BYTES):
                number += 1
                yield line.decode()
    except UnicodeDecodeError as error:
        where = f"line {number}, column {error.start + 1}"
        raise SourceError(f"{path.name}: {where}: it is not UTF-8 text; unpack it, if it is compressed") from None
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}; look at its volume") from None


@dataclass(frozen=True)
class StageInputs:
    """What a stage takes from the files."""

    trace: TraceWindow | None = None
    prompts: Iterator[tuple[int, Prompt]] | None = None
    """Endless; each with the count of how often the file has been begun."""


class Sources:
    """The agent's files. The first report starts reading them, off the event loop; it is remembered."""

    def __init__(self, trace: Path | None = None, prompts: Path | None = None) -> None:
        self._trace, self._prompts = trace, prompts
        self._trace_report: TraceReport | None = None
        self._prompts_report: PromptsReport | None = None
        self._reading: asyncio.Task[SourcesReport] | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Sources:
        paths = [Path(environment[name]) if environment.get(name) else None for name in (TRACE, PROMPTS)]
        return cls(*paths)

    def report(self) -> SourcesReport:
        """What the files hold, once they have been read; a fault is told, never raised."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(asyncio.to_thread(self.read_report))
        if not self._reading.done():
            return SourcesReport(state=SourceState.READING)
        return self._reading.result()

    def read_report(self) -> SourcesReport:
        """Read both files to their ends, in constant memory."""
        try:
            trace = self._read_trace_report() if self._trace is not None else None
            prompts = self._read_prompts_report() if self._prompts is not None else None
        except SourceError as error:
            return SourcesReport(state=SourceState.FAILED, message=f"{error}.")
        return SourcesReport(state=SourceState.READY, trace=trace, prompts=prompts)

    def read_inputs(self, spec: StageSpec) -> StageInputs:
        """The window of the trace and the prompts that a stage asks for. Raises SourceError.

        A stage's window lies where its seed says (`window_start`), and so do its prompts.
        """
        trace = self._read_window(spec) if spec.needs_trace else None
        prompts = self._open_prompts(spec) if spec.prompts is PromptSource.MOUNTED else None
        return StageInputs(trace, prompts)

    def _read_window(self, spec: StageSpec) -> TraceWindow:
        path = find_file(self._trace, "trace")
        first = window_start(spec, self._read_trace_report().requests)
        with _named(path):
            return take_window(lambda: read_lines(path), first, spec.limits.max_requests)

    def _open_prompts(self, spec: StageSpec) -> Iterator[tuple[int, Prompt]]:
        count = self._read_prompts_report().prompts
        first = int(generator(spec.seed, Stream.PROMPTS).integers(0, count))
        prompts = endless_prompts(find_file(self._prompts, "prompts"), first)
        return chain([next(prompts)], prompts)  # what lies before the first is read here, off the event loop

    def _read_trace_report(self) -> TraceReport:
        if self._trace_report is None:
            path = find_file(self._trace, "trace")
            with _named(path):
                self._trace_report = summarise_trace(read_trace(read_lines(path)))
        return self._trace_report

    def _read_prompts_report(self) -> PromptsReport:
        if self._prompts_report is None:
            path = find_file(self._prompts, "prompts")
            with _named(path):
                self._prompts_report = summarise_prompts(read_lines(path))
        return self._prompts_report


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of a format with the file's name in front. Raises SourceError."""
    try:
        yield
    except (TraceError, PromptError) as error:
        raise SourceError(f"{path.name}: {error}") from None


def endless_prompts(path: Path, start: int) -> Iterator[tuple[int, Prompt]]:
    """The prompts of a file from the `start`-th on, round and round, with the number of the round."""
    skip, turn = start, 0
    while True:
        for number, prompt in enumerate(read_prompts(read_lines(path))):
            if number >= skip:
                yield turn, prompt
        skip, turn = 0, turn + 1
