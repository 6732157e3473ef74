"""-o: as text for people, or as data for programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from kneekeeper.cli.show.listing import Detail
    from kneekeeper.local.chart import Ink


class Output(StrEnum):
    """What may be asked for."""

    TEXT = "text"
    WIDE = "wide"
    """Text with more columns."""
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """Resource and name, as kubectl takes them."""


def add_output_option(parser: argparse.ArgumentParser, *more: Output) -> None:
    """-o with json, yaml and `more`."""
    choices = [Output.JSON, Output.YAML, *more]
    parser.add_argument(
        "-o",
        "--output",
        choices=[each.value for each in choices],
        default=Output.TEXT.value,
        help="instead of text for people",
    )


def print_as(output: Output, value: object, text: Callable[[Detail], None], names: Iterable[str] = ()) -> None:
    """`value` as data, its objects' `names` one a line, or for people what `text` prints."""
    match output:
        case Output.JSON | Output.YAML:
            print_data(value, output)
        case Output.NAME:
            print("".join(f"{name}\n" for name in names), end="")
        case _:
            text(detail_of(output))


def print_data(value: object, output: Output) -> None:
    """Dataclasses as JSON or YAML. Names of fields stay, with their units; what was added later may be ignored."""
    import orjson

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    if output is Output.JSON:
        print(text.decode())
        return
    import yaml

    print(yaml.safe_dump(orjson.loads(text), sort_keys=False, allow_unicode=True), end="")


def print_lines(lines: Iterable[Text]) -> None:
    """Whole lines, never cut or wrapped; with colours on a terminal that has them and without NO_COLOR."""
    from rich.console import Console

    console = Console()
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def print_note(text: str) -> None:
    """To people, beside the output."""
    print(text, file=sys.stderr)


def detail_of(output: Output) -> Detail:
    """How much text is asked for."""
    from kneekeeper.cli.show.listing import Detail

    return Detail.WIDE if output is Output.WIDE else Detail.USUAL


def width() -> int:
    """Columns of the terminal; of a file or a pipe 80."""
    from rich.console import Console

    return Console().width


def ink() -> Ink:
    """Colours on a terminal that has them and without NO_COLOR."""
    from rich.console import Console

    from kneekeeper.local.chart import Ink

    console = Console()
    return Ink.COLOUR if console.color_system is not None and not console.no_color else Ink.PLAIN


@contextmanager
def working(what: str) -> Iterator[None]:
    """A line on a terminal that moves meanwhile, beside the output."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else nullcontext():
        yield
