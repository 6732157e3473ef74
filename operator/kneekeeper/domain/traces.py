"""Request traces, line by line: Azure's and BurstGPT's CSV, Mooncake's JSONL, and a plain JSONL.

The format is told by the first line:

    azure      TIMESTAMP,ContextTokens,GeneratedTokens      timestamps are dates (2023 and 2024 releases)
    burstgpt   Timestamp,…,Request tokens,Response tokens,… timestamps are seconds
    mooncake   {"timestamp": ms, "input_length": n, "output_length": n, …}
    plain      {"timestamp_s": seconds, "prompt_tokens": n, "output_tokens": n}

Timestamps never go back. A request without a prompt or an answer token failed when it was recorded (BurstGPT
writes 0 response tokens): it is left out and counted. Nothing is kept but the request at hand, so a trace may
be of any length.

Public sources: Azure/AzurePublicDataset; HPMLL/BurstGPT (arXiv 2401.17644); kvcache-ai/Mooncake (arXiv 2407.00079).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

LARGEST_TOKENS = 10_000_000
"""A longer prompt or answer is a mistake in the file."""

_LARGEST_TIME_S = 1e12


class TraceError(ValueError):
    """A trace that cannot be read. `line` and `column` count from 1; the message names both and the next step."""

    def __init__(self, line: int, column: int, why: str) -> None:
        super().__init__(f"line {line}, column {column}: {why}")
        self.line, self.column = line, column


class TraceRequest(NamedTuple):
    """One request. Times count from the trace's first line."""

    at_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def failed(self) -> bool:
        """Whether it was recorded without a prompt or an answer."""
        return self.prompt_tokens < 1 or self.output_tokens < 1


_Row = tuple[float, int, int]
_Parse = Callable[[str, int], _Row]


def read_trace(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """The requests of a trace, failed ones included, in the order of the file. Empty lines are skipped.

    Raises TraceError at the first line that is not in the trace's format, that goes back in time, and where
    there is no request at all.
    """
    parse: _Parse | None = None
    first_s, last_s = math.nan, -math.inf
    for number, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        if parse is None:
            line = line.removeprefix("\ufeff")
            parse = _parser_of(line, number)
            if not line.lstrip().startswith("{"):
                continue  # a header
        at_s, prompt_tokens, output_tokens = parse(line, number)
        if at_s < last_s:
            raise TraceError(number, 1, f"its time is {last_s - at_s:g} s before the line above; sort the file by time")
        if last_s == -math.inf:
            first_s = at_s
        last_s = at_s
        yield TraceRequest(at_s - first_s, prompt_tokens, output_tokens)
    if last_s == -math.inf:
        raise TraceError(1, 1, "there is no request in it; see docs/workloads.md for the formats")


def _parser_of(first: str, number: int) -> _Parse:
    if first.lstrip().startswith("{"):
        keys = _object(first, number).keys()
        for names, scale in ((_PLAIN, 1.0), (_MOONCAKE, 1e-3)):
            if {names.prompt, names.output} <= keys:
                return _JsonLines(names, scale)
        raise TraceError(
            number,
            1,
            f"neither a plain trace (keys {', '.join(_PLAIN)}) nor Mooncake's (keys {', '.join(_MOONCAKE)})",
        )
    header = [name.strip().lower() for name in _fields(first, number)]
    for names, timed in ((_AZURE, _date_s), (_BURST_GPT, _seconds)):
        if set(names) <= set(header):
            time, prompt, output = map(header.index, names)
            return _Csv((time, prompt, output), names, timed)
    raise TraceError(
        number,
        1,
        f"the header has neither Azure's columns ({', '.join(_AZURE)}) nor BurstGPT's ({', '.join(_BURST_GPT)})",
    )


class _Names(NamedTuple):
    """Of the three values that are read."""

    time: str
    prompt: str
    output: str


_PLAIN = _Names("timestamp_s", "prompt_tokens", "output_tokens")
_MOONCAKE = _Names("timestamp", "input_length", "output_length")
_AZURE = _Names("timestamp", "contexttokens", "generatedtokens")
_BURST_GPT = _Names("timestamp", "request tokens", "response tokens")


@dataclass(frozen=True)
class _Csv:
    """Reads three columns; `timed` turns the first into seconds."""

    columns: tuple[int, int, int]
    names: _Names
    timed: Callable[[str], float]

    def __call__(self, line: str, number: int) -> _Row:
        line = line.rstrip("\r\n")
        fields = _fields(line, number)
        time_at, prompt_at, output_at = self.columns
        try:
            return self.timed(fields[time_at]), _tokens(fields[prompt_at]), _tokens(fields[output_at])
        except (IndexError, ValueError, OverflowError):
            raise self._error(line, fields, number) from None

    def _error(self, line: str, fields: list[str], number: int) -> TraceError:
        """Which of the fields it is."""
        if len(fields) <= max(self.columns):
            needed = max(self.columns) + 1
            return TraceError(number, len(line) + 1, f"it ends after {len(fields)} of {needed} fields")
        checks = (self.timed, _tokens, _tokens)
        for name, at, check in zip(self.names, self.columns, checks, strict=True):
            try:
                check(fields[at])
            except (ValueError, OverflowError):
                column = sum(len(field) + 1 for field in fields[:at]) + 1
                wanted = "a whole number of tokens" if check is _tokens else "a time"
                return TraceError(number, column, f"{name} is {fields[at][:40]!r}, not {wanted}")
        raise AssertionError("called for a line that can be read")


def _fields(line: str, number: int) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise TraceError(number, line.index('"') + 1, f"its quotes do not match: {error}") from None


def _tokens(text: str) -> int:
    value = int(text)
    if not 0 <= value <= LARGEST_TOKENS:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not abs(value) <= _LARGEST_TIME_S:  # NaN included
        raise ValueError
    return value


_EPOCHS = {zoned: datetime(2020, 1, 1, tzinfo=UTC if zoned else None) for zoned in (False, True)}


def _date_s(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment - _EPOCHS[moment.tzinfo is not None]).total_seconds()


@dataclass(frozen=True)
class _JsonLines:
    """Reads three keys of an object a line; `scale` turns the first into seconds."""

    names: _Names
    scale: float

    def __call__(self, line: str, number: int) -> _Row:
        values = _object(line, number)
        time_name, prompt_name, output_name = self.names
        at, prompt, output = values.get(time_name), values.get(prompt_name), values.get(output_name)
        if type(prompt) is not int or not 0 <= prompt <= LARGEST_TOKENS:
            raise self._error(line, number, prompt_name, "a whole number of tokens")
        if type(output) is not int or not 0 <= output <= LARGEST_TOKENS:
            raise self._error(line, number, output_name, "a whole number of tokens")
        if (type(at) is not float and type(at) is not int) or not abs(at) <= _LARGEST_TIME_S:
            raise self._error(line, number, time_name, "a time")
        return at * self.scale, prompt, output

    def _error(self, line: str, number: int, name: str, wanted: str) -> TraceError:
        at = line.find(f'"{name}"')
        return TraceError(number, max(at, 0) + 1, f"{name} is missing" if at < 0 else f"{name} is not {wanted}")


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        column = min(error.pos, len(line.rstrip())) + 1
        raise TraceError(number, column, f"it is not JSON: {error.msg}") from None
    if not isinstance(values, dict):
        raise TraceError(number, 1, "it is not a JSON object")
    return values


@dataclass(frozen=True, eq=False)
class TraceWindow:
    """Consecutive requests of a trace as arrays; times count from the first of them."""

    at_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


def take_window(open_trace: Callable[[], Iterable[str]], skip: int, count: int) -> TraceWindow:
    """`count` requests after the first `skip`, failed ones left out. A trace that ends before is begun anew,
    its first request one mean gap after its last.

    Reads the trace as far as it needs and holds `count` requests. Raises TraceError.
    """
    at_s, prompts, outputs = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    taken = 0
    offset_s = 0.0
    while taken < count:
        seen = 0
        last_s = first_s = math.nan
        served = (request for request in read_trace(open_trace()) if not request.failed)
        for request in islice(served, skip + count - taken):
            seen += 1
            first_s = request.at_s if seen == 1 else first_s
            last_s = request.at_s
            if seen > skip:
                at_s[taken], prompts[taken], outputs[taken] = offset_s + last_s, *request[1:]
                taken += 1
        if not seen:
            raise TraceError(1, 1, "all its requests failed when it was recorded, so there is nothing to send")
        span_s = last_s - first_s
        offset_s += span_s + (span_s / (seen - 1) if seen > 1 else 1.0)
        skip = max(0, skip - seen)
    return TraceWindow(at_s - at_s[0], prompts, outputs)
