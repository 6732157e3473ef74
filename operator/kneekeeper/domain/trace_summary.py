"""What a whole trace holds, in a few numbers, found in one pass and constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.offered_load import Bin, Empirical
from kneekeeper.api.sources import TraceReport
from kneekeeper.domain.traces import LARGEST_TOKENS, TraceError, TraceRequest

_CHUNK = 4096
_PER_OCTAVE = 16
"""Bins of the count: 4.4% wide."""

_BODY_SHARE, _BODY_BIN, _TAIL_BIN = 0.95, 0.02, 0.0025
"""Neighbouring bins are joined while they hold less than this share of the requests, in the body of the
distribution and in its tail. A P99 lies in the tail, so its bins are finer. At most 70 bins are left."""


def _edges() -> NDArray[np.int64]:
    grid = np.floor(2 ** (np.arange(0, _PER_OCTAVE * np.log2(LARGEST_TOKENS) + 2) / _PER_OCTAVE))
    return np.unique(grid.astype(np.int64))


_EDGES = _edges()


class _LengthCounter:
    def __init__(self) -> None:
        self._counts = np.zeros(_EDGES.size, dtype=np.int64)
        self._shortest, self._longest = LARGEST_TOKENS, 1

    def add(self, tokens: NDArray[np.int64]) -> None:
        where = np.searchsorted(_EDGES, tokens, side="right") - 1
        self._counts += np.bincount(where, minlength=_EDGES.size)
        self._shortest = min(self._shortest, int(tokens.min()))
        self._longest = max(self._longest, int(tokens.max()))

    def histogram(self) -> Empirical:
        total = int(self._counts.sum())
        bins: list[Bin] = []
        low, weight, before = 0, 0, 0
        for at in np.flatnonzero(self._counts):
            low = low or max(int(_EDGES[at]), self._shortest)
            weight += int(self._counts[at])
            enough = _BODY_BIN if before < _BODY_SHARE * total else _TAIL_BIN
            if weight >= enough * total or before + weight == total:
                high = min(int(_EDGES[at + 1]) - 1, self._longest)
                bins.append(Bin(low=low, high=max(low, high), weight=weight))
                low, weight, before = 0, 0, before + weight
        return Empirical(bins=tuple(bins))


def summarise_trace(requests: Iterable[TraceRequest]) -> TraceReport:
    """The report of a trace; failed requests are counted and left out of all else.

    Raises TraceError, its own where all requests failed.
    """
    prompts, outputs = _LengthCounter(), _LengthCounter()
    served = left_out = 0
    first_s = last_s = None
    squares = 0.0
    for chunk in _chunks(requests):
        rows = np.array(chunk, dtype=np.float64)
        good = (rows[:, 1] >= 1) & (rows[:, 2] >= 1)
        left_out += int((~good).sum())
        rows = rows[good]
        if not len(rows):
            continue
        at_s = rows[:, 0]
        first_s = float(at_s[0]) if first_s is None else first_s
        gaps = np.diff(at_s, prepend=at_s[0] if last_s is None else last_s)
        squares += float((gaps**2).sum())
        last_s = float(at_s[-1])
        served += len(rows)
        prompts.add(rows[:, 1].astype(np.int64))
        outputs.add(rows[:, 2].astype(np.int64))
    if first_s is None or last_s is None:
        raise TraceError(1, 1, "all its requests failed when it was recorded, so there is nothing to send")
    duration_s, gaps_seen = last_s - first_s, max(served - 1, 1)
    mean_gap_s = duration_s / gaps_seen
    return TraceReport(
        requests=served,
        left_out=left_out,
        duration_s=duration_s,
        gap_variation=max(0.0, squares / gaps_seen / mean_gap_s**2 - 1) if mean_gap_s > 0 else 0.0,
        prompt_tokens=prompts.histogram(),
        output_tokens=outputs.histogram(),
    )


def _chunks(requests: Iterable[TraceRequest]) -> Iterator[list[TraceRequest]]:
    source = iter(requests)
    while chunk := list(islice(source, _CHUNK)):
        yield chunk
