"""The words of a container, where each stands, and what the kubelet makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kneekeeper.domain.arguments.expansion import Piece, expand_in_pieces


class WordList(StrEnum):
    """The field of the container that holds a word."""

    COMMAND = "command"
    ARGS = "args"


@dataclass(frozen=True)
class Item:
    """An item of `command` or `args`."""

    source: WordList
    index: int


@dataclass(frozen=True)
class EnvValue:
    """The value of a variable in the container's `env`."""

    name: str


@dataclass(frozen=True)
class Span:
    """The characters `start:end` of a text that can be edited."""

    place: Item | EnvValue
    start: int
    end: int


class Expander(StrEnum):
    """Who replaces a reference to a variable."""

    KUBELET = "Kubelet"  # $(NAME)
    SHELL = "Shell"  # $NAME, of a variable of the container's environment
    SCRIPT = "Script"  # $NAME, of a variable that the script itself sets


@dataclass(frozen=True)
class Reference:
    """A variable that is named in a text. `length` is the number of characters that stand for it afterwards."""

    name: str
    expander: Expander
    length: int


@dataclass(frozen=True)
class Glyph:
    """One character that a process receives, and what is written for it.

    `span` is the text that stands for it: itself, or a whole reference to a variable. `origin` is where the
    variable's value has the character, if that place can be edited too.
    """

    char: str
    span: Span
    reference: Reference | None = None
    origin: Span | None = None


@dataclass(frozen=True)
class Word:
    """One word: as written, and as the process receives it; `source` and `index` tell the item it stands in."""

    raw: str
    text: str
    unresolved: tuple[str, ...]  # variables whose value is not known; their references are still in `text`
    source: WordList
    index: int
    glyphs: tuple[Glyph, ...]


def words_of(command: Sequence[str] | None, args: Sequence[str] | None, env: Mapping[str, str]) -> tuple[Word, ...]:
    """All words in the order in which the process receives them."""
    return tuple(
        _word(raw, source, index, tuple(expand_in_pieces(raw, env)))
        for source, items in ((WordList.COMMAND, command or ()), (WordList.ARGS, args or ()))
        for index, raw in enumerate(items)
    )


@lru_cache(maxsize=1024)
def _word(raw: str, source: WordList, index: int, pieces: tuple[Piece, ...]) -> Word:
    """Remembered: each tick reads the same words several times, and a long template takes a tenth of a second."""
    place = Item(source, index)
    return Word(
        raw,
        "".join(piece.text for piece in pieces),
        tuple(piece.unresolved for piece in pieces if piece.unresolved is not None),
        source,
        index,
        tuple(glyph for piece in pieces for glyph in _glyphs(piece, place)),
    )


def _glyphs(piece: Piece, place: Item) -> Sequence[Glyph]:
    if piece.text == "$" or piece.replaced is not None:  # what stands for it is longer or shorter than the text
        reference = None if piece.replaced is None else Reference(piece.replaced, Expander.KUBELET, len(piece.text))
        span = Span(place, piece.start, piece.end)
        return [Glyph(char, span, reference) for char in piece.text]
    return [Glyph(char, Span(place, at, at + 1)) for at, char in enumerate(piece.text, piece.start)]
