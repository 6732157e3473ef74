"""The doctor's checks in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from kneekeeper.cli.checkup import Check, Health
from kneekeeper.cli.show.listing import BAD, FAINT, GOOD, NOTICE

_STYLES = {Health.GOOD: GOOD, Health.NOTICE: NOTICE, Health.BAD: BAD, Health.UNKNOWN: FAINT}
_WORDS = {Health.GOOD: "good", Health.NOTICE: "notice", Health.BAD: "bad", Health.UNKNOWN: "unknown"}


def check_lines(checks: Sequence[Check]) -> Iterator[Text]:
    """One line a check, and its next step below it."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        word = f"{_WORDS[check.health]:<9}"
        yield Text.assemble((word, _STYLES[check.health]), f"{check.name:<{width}}  ", check.message)
        if check.next_step:
            yield Text(f"{'':9}{'':{width}}  Next: {check.next_step}", FAINT)
