"""From a word of a script to the words that a command receives, each character with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kneekeeper.domain.arguments.environment import Content, Environment
from kneekeeper.domain.arguments.shell.arithmetic import evaluate
from kneekeeper.domain.arguments.shell.syntax import (
    AllArguments,
    Arithmetic,
    Parameter,
    Part,
    Quoting,
    ShellWord,
    Text,
    Unknown,
)
from kneekeeper.domain.arguments.words import EnvValue, Expander, Glyph, Item, Reference, Span, Word

_BLANKS = " \t\n"
_PATTERN_CHARACTERS = "*?["
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\{.*\{.*,.*\}")


@dataclass(frozen=True)
class NotKnown:
    """A part of a word that only a run can tell: how it is called, how it is written, and where.

    `one_word`: without blanks and not empty, whatever it is.
    """

    name: str
    written: str
    span: Span
    one_word: bool = False


@dataclass(frozen=True)
class Cell:
    """One step of a word's expansion: a character, the end of a word, or something that is not known."""

    glyph: Glyph | None = None
    quoting: Quoting = Quoting.QUOTED
    ends_word: bool = False
    unknown: NotKnown | None = None


@dataclass(frozen=True)
class Field:
    """One word that a command receives. `doubt`: what makes its text or its number uncertain, as written."""

    glyphs: tuple[Glyph, ...]
    unresolved: tuple[str, ...] = ()
    doubt: str | None = None

    @property
    def text(self) -> str:
        return "".join(glyph.char for glyph in self.glyphs)


Value = tuple[Glyph, ...]


@dataclass
class Variables:
    """The shell's variables at one point of the script. A value of None is not known."""

    environment: Environment
    values: dict[str, Value | None]
    set_by_script: set[str] = field(default_factory=set)
    single: set[str] = field(default_factory=set)  # set by the script to one word that is not known

    @classmethod
    def at_start(cls, environment: Environment) -> Variables:
        values: dict[str, Value | None] = {}
        for name, text in environment.items():
            place = EnvValue(name)
            values[name] = tuple(Glyph(char, Span(place, at, at + 1)) for at, char in enumerate(text))
        return cls(environment, values)

    def copy(self) -> Variables:
        return Variables(self.environment, dict(self.values), set(self.set_by_script), set(self.single))

    def put(self, name: str, value: Value | None, *, one_word: bool = False) -> None:
        self.values[name] = value
        self.set_by_script.add(name)
        (self.single.add if one_word else self.single.discard)(name)

    def known(self, name: str) -> bool:
        """Whether it is certain what `name` holds, or that it is not set."""
        if name in self.values:
            return self.values[name] is not None
        return not self.environment.may_be_set(name)

    def one_word(self, name: str) -> bool:
        if name in self.set_by_script:
            return name in self.single
        return self.environment.unknown.get(name) is Content.ONE_WORD

    def texts(self) -> Mapping[str, str]:
        return {name: "".join(g.char for g in value) for name, value in self.values.items() if value is not None}


class Expansion:
    """Expands words with the variables of one moment. `script` is the item of the container that holds the text."""

    def __init__(self, script: Word, variables: Variables, arguments: Sequence[Word]) -> None:
        self._script = script
        self._variables = variables
        self._arguments = arguments  # $0, $1 and so on

    def fields(self, words: Sequence[ShellWord]) -> tuple[Field, ...]:
        return tuple(field for word in words for field in _split(self._cells(word.parts), self._doubts(word)))

    def value(self, word: ShellWord) -> tuple[Value | None, bool]:
        """What an assignment stores: nothing is split. And whether it is one word, where it is not known."""
        cells = self._cells(word.parts)
        glyphs = tuple(cell.glyph for cell in cells if cell.glyph is not None)
        unknown = [cell.unknown for cell in cells if cell.unknown is not None]
        if not unknown:
            return glyphs, False
        splits = any(glyph.char in _BLANKS + _PATTERN_CHARACTERS for glyph in glyphs)
        return None, not splits and all(part.one_word for part in unknown)

    def _doubts(self, word: ShellWord) -> str | None:
        bare = "".join(
            char if part.quoting is Quoting.BARE else "\0"
            for part in word.parts
            if isinstance(part, Text)
            for char, _ in part.chars
        )
        return self._written(word.start, word.end) if _BRACES.search(bare) else None

    def _cells(self, parts: Sequence[Part]) -> list[Cell]:
        return [cell for part in parts for cell in self._part(part)]

    def _part(self, part: Part) -> Sequence[Cell]:
        match part:
            case Text(chars=(), quoting=quoting):
                return [Cell(quoting=quoting)]
            case Text(chars=chars, quoting=quoting):
                return [Cell(self._script.glyphs[at], quoting) for _, at in chars]
            case Parameter():
                return self._parameter(part)
            case Arithmetic():
                return self._arithmetic(part)
            case AllArguments():
                return self._all_arguments(part)
            case Unknown():
                return [self._unknown(part.start, part.end, part.quoting)]

    def _parameter(self, part: Parameter) -> Sequence[Cell]:
        if part.name.isdigit():
            return self._positional(part)
        if not self._variables.known(part.name):
            one_word = self._variables.one_word(part.name)
            return [self._unknown(part.start, part.end, part.quoting, part.name, one_word=one_word)]
        value = self._variables.values.get(part.name)
        if not part.operator:
            if value is None:  # not set: nothing, unless the image sets it
                return [self._unknown(part.start, part.end, part.quoting, part.name)]
            return self._referring(part, value)
        absent = value is None or (part.operator.startswith(":") and not value)
        kind = part.operator[-1]
        if kind == "+":
            return [] if absent else self._cells(part.default)
        if not absent:
            assert value is not None
            return self._referring(part, value)
        if kind == "?":
            return [self._unknown(part.start, part.end, part.quoting, part.name)]
        cells = self._cells(part.default)
        if any(cell.unknown is not None or cell.ends_word for cell in cells):
            return cells
        glyphs = tuple(cell.glyph for cell in cells if cell.glyph is not None)
        if kind == "=":
            self._variables.put(part.name, glyphs)
        return self._referring(part, glyphs, {i for i, c in enumerate(cells) if c.quoting is Quoting.QUOTED})

    def _referring(self, part: Parameter, value: Value, quoted: set[int] | None = None) -> Sequence[Cell]:
        by = Expander.SCRIPT if part.name in self._variables.set_by_script else Expander.SHELL
        reference = Reference(part.name, by, len(value))
        span = self._span(part.start, part.end)
        if not value:
            return [Cell(quoting=part.quoting)] if part.quoting is Quoting.QUOTED else []
        return [
            Cell(
                Glyph(glyph.char, span, reference, glyph.origin or glyph.span),
                Quoting.QUOTED if quoted and i in quoted else part.quoting,
            )
            for i, glyph in enumerate(value)
        ]

    def _positional(self, part: Parameter) -> Sequence[Cell]:
        index = int(part.name)
        if part.operator or index >= len(self._arguments):
            return [self._unknown(part.start, part.end, part.quoting, part.name)]
        return self._argument(self._arguments[index], part.quoting)

    def _argument(self, word: Word, quoting: Quoting) -> Sequence[Cell]:
        if word.unresolved:
            span = Span(Item(word.source, word.index), 0, len(word.raw))
            return [Cell(unknown=NotKnown(word.unresolved[0], word.raw, span), quoting=quoting)]
        cells = [Cell(glyph, quoting) for glyph in word.glyphs]
        return cells or ([Cell()] if quoting is Quoting.QUOTED else [])

    def _all_arguments(self, part: AllArguments) -> Sequence[Cell]:
        if part.name == "*" and part.quoting is Quoting.QUOTED:
            return [self._unknown(part.start, part.end, part.quoting, "*")]
        cells: list[Cell] = []
        for word in self._arguments[1:]:
            if cells:
                cells.append(Cell(ends_word=True))
            cells += self._argument(word, part.quoting)
        return cells

    def _arithmetic(self, part: Arithmetic) -> Sequence[Cell]:
        cells = self._cells(part.parts)
        result = None
        if all(cell.unknown is None for cell in cells):
            expression = "".join(cell.glyph.char for cell in cells if cell.glyph is not None)
            result = evaluate(expression, self._variables.texts())
        if result is None:  # a number all the same, so one word
            return [self._unknown(part.start, part.end, part.quoting, one_word=True)]
        span = self._span(part.start, part.end)
        digits = str(result)
        reference = Reference("", Expander.SCRIPT, len(digits))
        return [Cell(Glyph(char, span, reference), Quoting.QUOTED) for char in digits]

    def _unknown(
        self, start: int, end: int, quoting: Quoting, name: str | None = None, *, one_word: bool = False
    ) -> Cell:
        written = self._written(start, end)
        unknown = NotKnown(name or written, written, self._span(start, end), one_word)
        return Cell(quoting=Quoting.QUOTED if one_word else quoting, unknown=unknown)

    def _written(self, start: int, end: int) -> str:
        span = self._span(start, end)
        return self._script.raw[span.start : span.end]

    def _span(self, start: int, end: int) -> Span:
        glyphs = self._script.glyphs
        return Span(glyphs[start].span.place, glyphs[start].span.start, glyphs[end - 1].span.end)


def _split(cells: Sequence[Cell], doubt: str | None) -> list[Field]:
    """Words end at bare blanks of values; a word without characters stays only if it has quotes."""
    fields: list[Field] = []
    current = _Growing(doubt)
    for cell in cells:
        blank = cell.glyph is not None and cell.glyph.char in _BLANKS
        if cell.ends_word or (blank and cell.quoting is Quoting.BARE):
            fields += current.finished()
            current = _Growing(doubt)
        else:
            current.take(cell)
    return [*fields, *current.finished()]


class _Growing:
    def __init__(self, doubt: str | None) -> None:
        self._glyphs: list[Glyph] = []
        self._unresolved: list[str] = []
        self._exists = False
        self._doubt = doubt

    def take(self, cell: Cell) -> None:
        if cell.unknown is not None:
            self._take_unknown(cell.unknown, cell.quoting)
            return
        if cell.glyph is None:
            self._exists = self._exists or cell.quoting is Quoting.QUOTED
            return
        self._exists = True
        self._glyphs.append(cell.glyph)
        if cell.quoting is Quoting.BARE and cell.glyph.char in _PATTERN_CHARACTERS:
            self._doubt = self._doubt or "".join(glyph.char for glyph in self._glyphs)

    def _take_unknown(self, unknown: NotKnown, quoting: Quoting) -> None:
        self._exists = True
        self._unresolved.append(unknown.name)
        if quoting is Quoting.BARE:
            self._doubt = unknown.written
        placeholder = f"$({unknown.name})"
        reference = Reference(unknown.name, Expander.SHELL, len(placeholder))
        self._glyphs += [Glyph(char, unknown.span, reference) for char in placeholder]

    def finished(self) -> list[Field]:
        if not self._exists:
            return []
        return [Field(tuple(self._glyphs), tuple(self._unresolved), self._doubt)]
