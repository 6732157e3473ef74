"""A change of a workload as a unified diff of YAML."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import yaml
from rich.text import Text

from kneekeeper.cli.show.listing import BAD, FAINT, GOOD, NOTICE, limits
from kneekeeper.domain.views.diff import DiffView, FieldDiff

_LONG = 1_000_000  # no value is folded


def diff_lines(view: DiffView) -> Iterator[Text]:
    """The changed fields, and below them what they are worth and who has to make them."""
    for change in view.changes:
        yield from _field(change)
    if view.changes:
        yield Text()
        yield Text(
            f"{view.target}: {limits(view.live)} to {limits(view.recommended)} (hash {view.hash}). {view.improvement}"
        )
    elif not view.problem:
        yield Text(f"{view.target} runs with the recommended limits, {limits(view.recommended)}.")
    if view.problem:
        yield Text(f"The recommended {limits(view.recommended)} cannot be written: {view.problem}", NOTICE)
    if view.owner and view.changes:
        yield Text(f"It belongs to {view.owner}, which may write its own values back; change them there.", NOTICE)


def _field(change: FieldDiff) -> Iterator[Text]:
    old, new = _yaml(change.before), _yaml(change.after)
    names = (f"{change.object} {change.path} (live)", f"{change.object} {change.path} (recommended)")
    for line in difflib.unified_diff(old, new, *names, lineterm=""):
        style = FAINT if line.startswith(("---", "+++", "@@")) else {"-": BAD, "+": GOOD}.get(line[:1], "")
        yield Text(line, style)


def _yaml(value: Any) -> list[str]:
    if value is None:
        return []
    return yaml.safe_dump(value, sort_keys=False, width=_LONG, allow_unicode=True).removesuffix("...\n").splitlines()
