"""Lists in columns, as kubectl has them: one object a line, for people and for awk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from rich.text import Text

from kneekeeper.domain.views.fleet import Limits

GOOD, NOTICE, BAD, FAINT = "green", "yellow", "red", "dim"
"""Styles; the words say the same."""


class Detail(Enum):
    """How much is shown."""

    USUAL = auto()
    WIDE = auto()


class Namespaces(Enum):
    """Whether objects of several namespaces stand in one list."""

    ONE = auto()
    ALL = auto()


_GAP = "   "
NOTHING = "-"

_Row = TypeVar("_Row")


def _plain(_: object) -> str:
    return ""


@dataclass(frozen=True)
class Column(Generic[_Row]):
    """`style` is one of this module's, or empty."""

    heading: str
    cell: Callable[[_Row], str]
    style: Callable[[_Row], str] = _plain


def listing(columns: Sequence[Column[_Row]], rows: Iterable[_Row], indent: str = "") -> list[Text]:
    """Headings and one line a row, as wide as the widest cell of each column."""
    cells = [[(column.cell(row) or NOTHING, column.style(row)) for column in columns] for row in rows]
    table = [[(column.heading, "") for column in columns], *cells]
    widths = [max(len(line[index][0]) for line in table) for index in range(len(columns))]
    return [_line(line, widths, indent) for line in table]


def _line(cells: Sequence[tuple[str, str]], widths: Sequence[int], indent: str) -> Text:
    line = Text(indent)
    for (cell, style), width in zip(cells[:-1], widths[:-1], strict=True):
        line.append(cell, style)
        line.append(" " * (width - len(cell)) + _GAP)
    line.append(*cells[-1])
    return line


def fact_lines(facts: Iterable[tuple[str, str]], width: int) -> Iterator[Text]:
    """One line a fact, with its name in a column of this width before it."""
    for name, value in facts:
        yield Text.assemble("  ", (f"{name:<{width}}", FAINT), value)


def limits(given: Limits | None) -> str:
    """`64/4096`: sequences and tokens."""
    if given is None:
        return NOTHING
    return f"{given.max_num_seqs or 'default'}/{given.max_num_batched_tokens or 'default'}"


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits."""
    return NOTHING if value is None else f"{value:.3g}{unit}" if abs(value) < 1e3 else f"{value:.0f}{unit}"


def milliseconds(value: float | None) -> str:
    """As durations are written."""
    if value is None:
        return NOTHING
    return f"{value:.3g}ms" if value < 1e3 else f"{value / 1e3:.3g}s"


def bar(share: float, width: int) -> str:
    """`share` of the width filled; more than all is all."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "·" * (width - filled)
