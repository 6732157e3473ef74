"""Splits vLLM's arguments into flags with their values, as vLLM's own parser does.

Two passes, in the order of vLLM's FlexibleArgumentParser (vLLM 0.32, utils/argparse_utils.py): dotted keys
(`--compilation-config.mode 3`) are taken out first, then argparse reads the rest. `-` and `_` are equal in a
flag's name, a unique beginning of a name is the name, a value follows `=` or is the next word.

Unlike argparse, an unknown flag is kept as it stands: newer versions and plugins have flags that no table
lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.arguments.flags import (
    ALIASES,
    FLAGS,
    LIMIT_FLAGS,
    NEGATIONS,
    OPTION_STRINGS,
    SECRET_FLAGS,
    Arity,
)
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.words import Word

_NAME = re.compile(r"-{1,2}[\w-]*", re.ASCII)
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_TRUTH = {"true": True, "false": False}
# Up to vLLM 0.8.0 this flag took an optional true or false.
_OPTIONAL_TRUTH_FLAGS = frozenset({"--enable-chunked-prefill"})


class Form(StrEnum):
    """Where a flag's value stands."""

    INLINE = "Inline"  # --flag=value
    SEPARATE = "Separate"  # --flag value
    BARE = "Bare"  # no value


@dataclass(frozen=True)
class Value:
    """One value of a flag."""

    text: str
    unresolved: tuple[str, ...]
    word: Word


@dataclass(frozen=True)
class Occurrence:
    """One flag as it stands once. `loose`: words behind an unknown flag that may or may not be its values."""

    name: str  # the full name with dashes; an unknown flag's name as written
    key: str  # the name as written, without value
    word: Word
    form: Form
    values: tuple[Value, ...] = ()
    known: bool = True
    negated: bool = False
    loose: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Scan:
    """All arguments of one engine."""

    occurrences: tuple[Occurrence, ...]
    positionals: tuple[Word, ...]


@dataclass(frozen=True)
class _Option:
    key: str
    name: str
    inline: str | None
    known: bool
    negated: bool = False


def scan(arguments: Sequence[Word]) -> Scan:
    """Read `arguments`. Raises RefusedError with the word that has no certain meaning."""
    dotted, rest = _take_dotted(arguments)
    occurrences: list[Occurrence] = []
    positionals: list[Word] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        option = _option(word)
        at += 1
        if option is None:
            _certain_text(word)
            positionals.append(word)
            continue
        following = _values_from(rest, at)
        occurrence = _occurrence(word, option, following)
        at += len(occurrence.loose) + sum(value.word is not word for value in occurrence.values)
        occurrences.append(occurrence)
    return Scan((*occurrences, *dotted), tuple(positionals))


def _take_dotted(arguments: Sequence[Word]) -> tuple[list[Occurrence], list[Word]]:
    dotted: list[Occurrence] = []
    rest: list[Word] = []
    words = iter(arguments)
    for word in words:
        key, equals, inline = word.text.partition("=")
        if not (key.startswith("-") and "." in key) or " " in key:
            rest.append(word)
            continue
        _certain_key(word, key)
        base, dot, path = key.partition(".")
        name = ALIASES.get(base, base.replace("_", "-")) + dot + path
        if any(flag.startswith(base.replace("_", "-")) for flag in LIMIT_FLAGS):
            raise RefusedError(
                RefusalReason.NOT_UNDERSTOOD,
                word.text,
                "A limit has no keys below it",
                "Remove this argument.",
            )
        if equals:
            value = Value(inline, word.unresolved, word)
            dotted.append(Occurrence(name, key, word, Form.INLINE, (value,)))
            continue
        following = next(words, None)
        if following is None:
            raise _missing(word)
        value = Value(following.text, following.unresolved, following)
        dotted.append(Occurrence(name, key, word, Form.SEPARATE, (value,)))
    return dotted, rest


def _values_from(rest: Sequence[Word], start: int) -> list[Word]:
    """The words from `start` on that are no flags."""
    end = start
    while end < len(rest) and _option(rest[end]) is None:
        end += 1
    return list(rest[start:end])


def _option(word: Word) -> _Option | None:
    """The flag that `word` is, or None for a value; argparse's `_parse_optional`."""
    text = word.text
    if not text.startswith("-") or text == "-" or _NEGATIVE_NUMBER.fullmatch(text):
        return None
    if text == "--":
        raise RefusedError(RefusalReason.NOT_UNDERSTOOD, text, "The end-of-options mark has no use here", "Remove it.")
    key, equals, inline = text.partition("=")
    value = inline if equals else None
    if " " in key:
        raise RefusedError(
            RefusalReason.NOT_UNDERSTOOD,
            text,
            "One item of the list holds several words",
            "Write a flag and its value as two items, or as --flag=value.",
        )
    _certain_key(word, key)
    if not _NAME.fullmatch(key.partition(".")[0]):
        raise RefusedError(
            RefusalReason.NOT_UNDERSTOOD,
            ascii(text)[1:-1],
            "A flag's name holds a character that none of vLLM's has",
            "Write it anew, with plain hyphens and letters.",
        )
    if key.startswith("--"):
        return _long_option(word, key, value)
    return _short_option(key, value)


def _long_option(word: Word, key: str, value: str | None) -> _Option:
    name = key.replace("_", "-")
    matches = [name] if name in FLAGS or name in NEGATIONS else _beginning_with(name)
    if len(matches) > 1:
        raise RefusedError(
            RefusalReason.AMBIGUOUS_FLAG,
            word.text,
            f"The abbreviation may mean {', '.join(sorted(matches)[:4])}, depending on vLLM's version",
            "Write the flag's full name.",
        )
    if not matches:
        return _Option(key, key, value, known=False)
    full = matches[0]
    return _Option(key, NEGATIONS.get(full, full), value, known=True, negated=full in NEGATIONS)


def _beginning_with(name: str) -> list[str]:
    return [option for option in OPTION_STRINGS if option.startswith(name)]


def _short_option(key: str, value: str | None) -> _Option:
    if key in ALIASES:
        return _Option(key, ALIASES[key], value, known=True)
    if key.startswith("-O"):  # -O3
        return _Option("-O", ALIASES["-O"], key[2:], known=True)
    return _Option(key, key, value, known=False)


def _occurrence(word: Word, option: _Option, following: Sequence[Word]) -> Occurrence:
    if option.inline is not None:
        value = Value(option.inline, word.unresolved, word)
        return Occurrence(option.name, option.key, word, Form.INLINE, (value,), option.known, option.negated)
    if not option.known:
        return Occurrence(option.name, option.key, word, Form.BARE, known=False, loose=tuple(following))
    taken = _taken(word, option, following)
    values = tuple(Value(item.text, item.unresolved, item) for item in taken)
    form = Form.SEPARATE if values else Form.BARE
    return Occurrence(option.name, option.key, word, form, values, negated=option.negated)


def _taken(word: Word, option: _Option, following: Sequence[Word]) -> Sequence[Word]:
    """The words that the flag takes as its values."""
    arity = FLAGS[option.name]
    if arity in (Arity.SWITCH, Arity.PLAIN_SWITCH):
        takes_truth = option.name in _OPTIONAL_TRUTH_FLAGS and not option.negated
        return following[:1] if takes_truth and following and following[0].text.lower() in _TRUTH else ()
    if arity is Arity.OPTIONAL:
        return following[:1]
    if not following:
        raise _missing(word)
    if arity is Arity.ONE:
        return following[:1]
    # The first value is certain; a variable that is not known may be a flag, but a secret is a value.
    if option.name not in SECRET_FLAGS:
        for item in following[1:]:
            _certain_text(item)
    return following


def _certain_key(word: Word, key: str) -> None:
    if word.unresolved and "$(" in key:
        raise _unresolved(word)


def _certain_text(word: Word) -> None:
    if word.unresolved and word.text.startswith("$("):
        raise _unresolved(word)


def _unresolved(word: Word) -> RefusedError:
    return RefusedError(
        RefusalReason.UNRESOLVED_VARIABLE,
        word.raw,
        f"The value of {', '.join(word.unresolved)} is not known, and it may hold any argument",
        "Set it by a literal value or a ConfigMap, or write the argument out.",
    )


def _missing(word: Word) -> RefusedError:
    return RefusedError(RefusalReason.MISSING_VALUE, word.text, "A flag stands without its value", "Add the value.")


def truth_of(occurrence: Occurrence) -> bool:
    """Whether a switch is on, also in the form `--flag=false` of older versions. Raises RefusedError."""
    if not occurrence.values:
        return not occurrence.negated
    text = occurrence.values[0].text
    if text.lower() not in _TRUTH:
        raise RefusedError(
            RefusalReason.INVALID_VALUE,
            occurrence.word.text,
            "The value is neither true nor false",
            "Correct it.",
        )
    return _TRUTH[text.lower()] is not occurrence.negated
