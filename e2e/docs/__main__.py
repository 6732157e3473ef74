"""`python -m e2e.docs` writes docs/reference from the code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from e2e.docs import fields, reasons

REFERENCE = Path(__file__).parents[2] / "docs" / fields.FOLDER


@cache
def written() -> dict[Path, str]:
    """Every page that is written from code, by its file."""
    pages = fields.pages() | {reasons.PAGE_NAME: reasons.page()}
    return {REFERENCE / name: text for name, text in pages.items()}


def main() -> None:
    """Write them all."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
