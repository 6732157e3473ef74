"""Outputs that are held to the letter: `KNEEKEEPER_WRITE_GOLDEN=1 pytest tests/unit/cli` writes them anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rich.text import Text

FOLDER = Path(__file__).parent / "golden"


def hold(name: str, text: str) -> None:
    """The text is that of the file; spaces at the ends of lines do not count."""
    path = FOLDER / f"{name}.txt"
    told = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("KNEEKEEPER_WRITE_GOLDEN"):
        path.write_text(told, encoding="utf-8")
    assert told == path.read_text(encoding="utf-8")


def plain(lines: Iterable[Text]) -> str:
    """Without colours."""
    return "\n".join(line.plain for line in lines)
