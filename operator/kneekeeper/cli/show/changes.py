"""What changed in a fleet, a line for each profile; and a list that fits a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from kneekeeper.cli.show.listing import FAINT, NOTHING, Detail
from kneekeeper.cli.show.status import fleet_columns
from kneekeeper.domain.views.fleet import FleetRow
from kneekeeper.domain.views.key import Key


class Changes:
    """Tells each profile once as it is, and then what of it became different."""

    def __init__(self, detail: Detail) -> None:
        self._columns = [column for column in fleet_columns(detail) if column.heading != "NAME"]
        self._known: dict[Key, FleetRow] = {}

    def lines(self, rows: Sequence[FleetRow], at: datetime) -> Iterator[Text]:
        """Of the fleet as it is now, against the one before."""
        now = {Key(row.namespace, row.name): row for row in rows}
        for key in sorted(self._known.keys() - now.keys()):
            yield _line(key, at, [Text("gone")])
        for key, row in now.items():
            before = self._known.get(key)
            if row != before and (cells := list(self._cells(before, row))):
                yield _line(key, at, cells)
        self._known = now

    def _cells(self, before: FleetRow | None, now: FleetRow) -> Iterator[Text]:
        for column in self._columns:
            cell = column.cell(now) or NOTHING
            was = None if before is None else column.cell(before) or NOTHING
            if cell != was:
                told = f"{column.heading} {cell}" if was is None else f"{column.heading} {cell}, was {was}"
                yield Text(told, column.style(now))


def _line(key: Key, at: datetime, cells: Sequence[Text]) -> Text:
    return Text.assemble((f"{at:%Y-%m-%dT%H:%M:%SZ} ", FAINT), f"{key.namespace}/{key.name}: ", Text("; ").join(cells))


def fitted(lines: Sequence[Text], height: int) -> list[Text]:
    """As many lines as a terminal has, the last one telling what is left out."""
    if len(lines) <= height:
        return list(lines)
    left = len(lines) - height + 1
    return [*lines[: height - 1], Text(f"and {left} more lines; a taller terminal shows them", FAINT)]
