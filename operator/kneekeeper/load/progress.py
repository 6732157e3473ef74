"""A running stage as numbers: the worker's counters, the rows so far, and what follows from them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from kneekeeper.api.stage import Outcome, Samples
from kneekeeper.domain.samples import Bools, Ints, StageData
from kneekeeper.domain.steady import Course
from kneekeeper.domain.workload import Floats
from kneekeeper.load.answers import Row
from kneekeeper.load.frames import Tick

_OUTCOMES = tuple(Outcome)
_FLOATS = ("intended_s", "sent_s", "first_s", "last_s")
_COUNTS = ("index", "prompt_tokens", "output_tokens", "first_chunk_tokens", "chunks")


@dataclass(frozen=True)
class Rates:
    """Means over a window of the stage; 0 where it is empty."""

    requests_per_s: float
    output_tokens_per_s: float
    mean_concurrency: float


_COUNTERS = ("sent", "ended", "waiting", "answers")


class Progress:
    """Collects ticks and rows of one stage, of one worker or of several.

    The worker of part n began at the n-th of `started_at`, a reading of its own `time.perf_counter`: what is told of
    them is in seconds since each one's start. Counters are summed whenever the first part tells its own; the others'
    are then as old as a tick, and what they take to get here.
    """

    def __init__(self, *started_at: float) -> None:
        self.started_at = list(started_at)
        self._latest: dict[int, Tick] = {}
        self._lags = [array("d") for _ in started_at]
        self._ended_parts: set[int] = set()
        self._ticks = {name: array("d") for name in ("t_s", *_COUNTERS)}
        self._columns = {name: array("d") for name in _FLOATS} | {name: array("q") for name in _COUNTS}
        self._outcomes = array("B")
        self._tally = dict.fromkeys(Outcome, 0)
        self.cpu_s = 0.0
        self.cut_answers = 0
        """Ok rows with fewer tokens than were asked for."""
        self.failures_in_a_row = 0
        self.last_problem = ""

    def add_tick(self, tick: Tick, part: int = 0) -> None:
        """A worker's counters; `cpu_s` is that of the busiest one."""
        self._latest[part] = tick
        self._lags[part].append(tick.lag_s)
        self.cpu_s = max(self.cpu_s, tick.cpu_s)
        if part == min(set(range(len(self.started_at))) - self._ended_parts):
            self._ticks["t_s"].append(max(tick.at - self.started_at[part], self.elapsed_s))
            for name in _COUNTERS:
                self._ticks[name].append(sum(getattr(latest, name) for latest in self._latest.values()))

    def end_part(self, part: int) -> None:
        """A worker has told its last tick: from now on the next one sets the pace."""
        self._ended_parts.add(part)

    def sent_by(self, part: int) -> int:
        """How many requests a worker has sent."""
        return self._latest[part].sent if part in self._latest else 0

    def add_row(self, row: Row) -> None:
        for name, column in self._columns.items():
            column.append(getattr(row, name))
        self._outcomes.append(_OUTCOMES.index(row.outcome))
        self._tally[row.outcome] += 1
        self.cut_answers += row.outcome is Outcome.OK and row.missing_tokens > 0
        self.failures_in_a_row = self.failures_in_a_row + 1 if row.outcome is Outcome.ERROR else 0
        self.last_problem = row.problem or self.last_problem

    def count(self, outcome: Outcome) -> int:
        return self._tally[outcome]

    @property
    def rows(self) -> int:
        return len(self._outcomes)

    @property
    def sent(self) -> int:
        return int(self._ticks["sent"][-1]) if self._ticks["sent"] else 0

    def sent_at(self, at: float) -> int | None:
        """How many were sent by `at` (`time.perf_counter`) or, at most a tick, later; None while it is not told."""
        told = bisect_left(self._ticks["t_s"], at - self.started_at[0]) if self._ticks["t_s"] else 0
        return int(self._ticks["sent"][told]) if told < len(self._ticks["sent"]) else None

    @property
    def elapsed_s(self) -> float:
        """The time of the last tick."""
        return self._ticks["t_s"][-1] if self._ticks["t_s"] else 0.0

    def column(self, name: str) -> Floats:
        """One column of the rows, in the order in which they ended; a copy."""
        return np.array(self._columns[name], dtype=np.float64)

    def ok(self) -> Bools:
        """Which rows are Ok."""
        return np.equal(np.array(self._outcomes, dtype=np.int64), _OUTCOMES.index(Outcome.OK))

    def lags_s(self) -> list[Floats]:
        """How late each worker's timer was."""
        return [np.array(lags, dtype=np.float64) for lags in self._lags]

    def course(self) -> Course:
        ticks = {name: np.array(values, dtype=np.float64) for name, values in self._ticks.items()}
        return Course(ticks["t_s"], ticks["sent"], ticks["ended"], ticks["waiting"], ticks["answers"])

    def mean_e2e_s(self) -> float:
        """Of the Ok rows so far, from the intended send time; 0 without any."""
        ok = self.ok()
        return float((self.column("last_s") - self.column("intended_s"))[ok].mean()) if ok.any() else 0.0

    def rates(self, from_s: float, until_s: float) -> Rates:
        """What the server did from `from_s` to `until_s`.

        Concurrency is the time average of the requests in flight. The tokens of a request are spread evenly
        between its first and its last one.
        """
        span_s = until_s - from_s
        if span_s <= 0 or not self.rows:
            return Rates(0.0, 0.0, 0.0)
        sent, first, last = (self.column(name) for name in ("sent_s", "first_s", "last_s"))

        def inside(start: Floats, end: Floats) -> Floats:
            return np.clip(end, None, until_s).clip(from_s) - np.clip(start, from_s, until_s)

        ended_inside = (last >= from_s) & (last < until_s)
        decode_s = last - first
        share = np.where(decode_s > 0, inside(first, last) / np.maximum(decode_s, 1e-9), ended_inside)
        tokens = float((share * self.column("output_tokens")).sum())
        served = int((ended_inside & self.ok()).sum())
        return Rates(served / span_s, tokens / span_s, float(inside(sent, last).sum()) / span_s)

    def warm(self, warmup_s: float) -> tuple[int, int]:
        """Rows that were meant to be sent after `warmup_s`, and the token gaps in the Ok ones of them."""
        warm = self.column("intended_s") >= warmup_s
        gaps = self.column("output_tokens") - self.column("first_chunk_tokens")
        return int(warm.sum()), int(gaps[warm & self.ok()].sum())

    def settled(self, warmup_s: float, request_class: Ints) -> StageData:
        """The requests after warm-up in the order in which they were sent, up to the first one that has not
        ended: to take later ones before it would prefer the fast. `request_class` is that of all requests of the
        stage; empty without a mix.
        """
        index = self.column("index")
        order = np.argsort(index, kind="stable")
        settled = order[index[order] == np.arange(index.size)]
        settled = settled[self.column("intended_s")[settled] >= warmup_s]
        classes = request_class[index[settled].astype(np.int64)] if request_class.size else request_class
        return StageData(
            warmup_s=warmup_s,
            intended_s=self.column("intended_s")[settled],
            first_s=self.column("first_s")[settled],
            last_s=self.column("last_s")[settled],
            prompt_tokens=self.column("prompt_tokens")[settled].astype(np.int64),
            output_tokens=self.column("output_tokens")[settled].astype(np.int64),
            first_chunk_tokens=self.column("first_chunk_tokens")[settled].astype(np.int64),
            ok=self.ok()[settled],
            request_class=classes,
        )

    def samples(self, warmup_s: float, request_class: Ints) -> Samples:
        """All rows as they are sent to the operator; `request_class` as in `settled`."""
        columns: dict[str, Any] = {name: values.tolist() for name, values in self._columns.items()}
        index = columns.pop("index")
        columns["request_class"] = request_class[index].tolist() if request_class.size else []
        return Samples(warmup_s=warmup_s, **columns, outcome=[_OUTCOMES[at] for at in self._outcomes])
