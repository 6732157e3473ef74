"""`python -m kneekeeper.cli.reference docs/cli.md` writes the reference of all commands into the page.

It stands between two comments of the page and is made from what argparse knows, so that it cannot differ from the
help. It does not depend on the version of Python or the width of a terminal, as argparse's own text does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from kneekeeper.cli.main import parser_of
from kneekeeper.cli.parser import PROGRAM

BEGIN, END = "<!-- reference: begin; `make cli-docs` writes it -->\n", "<!-- reference: end -->\n"


def reference() -> str:
    """Every command with its arguments, options, exit codes and examples, as Markdown."""
    return "\n".join(line for name, parser in leaves(parser_of(PROGRAM), PROGRAM) for line in _section(name, parser))


def with_reference(page: str) -> str:
    """The page with the reference as it is now. Raises ValueError where the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The leaves of the tree, with all words that lead to them."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for word, child in group.choices.items():
            yield from leaves(child, f"{name} {word}")


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield " ".join((parser.description or "").split("\n\n")[0].split())
    for paragraph in (parser.description or "").split("\n\n")[1:]:
        yield ""
        yield " ".join(paragraph.split())
    yield ""
    rows = [_row(action) for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    if rows:
        yield "| argument | meaning |"
        yield "| --- | --- |"
        yield from rows
        yield ""
    if parser.epilog:
        yield "```text"
        yield parser.epilog
        yield "```"
        yield ""


def _row(action: argparse.Action) -> str:
    help_text = (action.help or "").replace("|", "\\|")
    if action.choices is not None:
        help_text = f"{help_text}: {', '.join(map(str, action.choices))}"
    return f"| {_names(action)} | {help_text} |"


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        name = str(action.metavar or action.dest)
        return f"`{name}`" if action.nargs is None else f"`[{name}]`" if action.nargs == "?" else f"`{name} …`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def main() -> None:
    """Write the page."""
    page = Path(sys.argv[1])
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
