"""The words of a script: quotes, parameters, substitutions. `parser` reads the commands around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
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

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BRACED_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*]", re.ASCII)
_PARAMETER_OPERATOR = re.compile(r":?[-=+?]")
_SPECIAL_PARAMETERS = "?#$!-"
_WORD_ENDS = " \t\n;&|()<>"


class Dialect(StrEnum):
    """What the shell is known to be."""

    POSIX = "POSIX"  # sh: dash, ash or bash, so that only what they share is understood
    BASH = "Bash"


class WordParser:
    """Reads words from a position of a text. Raises RefusedError for what it does not know."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self.at = 0

    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def refusal(self, problem: str, start: int | None = None) -> RefusedError:
        at = self.at if start is None else start
        piece = self.text[at : at + 40].split("\n")[0] or "the end of the script"
        return RefusedError(
            RefusalReason.SHELL_COMMAND,
            piece,
            f"{problem} in the shell script",
            "Write the container's command as a list, or the script without it.",
        )

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    # Words

    def word(self) -> ShellWord:
        """One word; without parts where none begins here."""
        start = self.at
        parts: list[Part] = []
        while not self.at_end() and self.text[self.at] not in _WORD_ENDS:
            if self.peek("\\\n"):
                self.at += 2
            else:
                parts += self._parts(start)
        return ShellWord(tuple(parts), start, self.at)

    def _parts(self, word_start: int) -> Sequence[Part]:
        if self.peek('"'):
            return self._double_quoted()
        return (self._part(word_start),)

    def _part(self, word_start: int) -> Part:
        start, char = self.at, self.text[self.at]
        if char == "\\":
            if start + 1 >= len(self.text):
                raise self.refusal("The script ends with a backslash")
            self.at += 2
            return Text(((self.text[start + 1], start + 1),), Quoting.QUOTED)
        if char == "'":
            return self._single_quoted()
        if char == "$":
            return self._dollar(Quoting.BARE)
        if char == "`":
            return self._backticks(Quoting.BARE)
        if char == "~" and (start == word_start or self.text[start - 1] in "=:"):
            self.at += 1
            return Unknown(start, self.at, Quoting.QUOTED)  # a path: one word, whatever it holds
        self.at += 1
        return Text(((char, start),), Quoting.BARE)

    def _single_quoted(self) -> Text:
        start = self.at
        end = self.text.find("'", start + 1)
        if end < 0:
            raise self.refusal("A quote has no end", start)
        self.at = end + 1
        return Text(tuple((self.text[at], at) for at in range(start + 1, end)), Quoting.QUOTED)

    def _double_quoted(self) -> tuple[Part, ...]:
        start = self.at
        self.at += 1
        parts = self._quoted_parts('"', start)
        self.at += 1
        return parts or (Text((), Quoting.QUOTED),)

    def _quoted_parts(self, end: str, start: int) -> tuple[Part, ...]:
        """Up to the character `end`, which is not taken, by the rules of double quotes."""
        parts: list[Part] = []
        while not self.peek(end):
            if self.at_end():
                raise self.refusal("A quote has no end", start)
            at, char = self.at, self.text[self.at]
            following = self.text[at + 1 : at + 2]
            if char == '"':
                raise self.refusal("Quotes inside `${…}` inside quotes are not understood")
            if char == "\\" and following == "\n":
                self.at += 2
            elif char == "\\" and following and following in '$`"\\' + end:
                self.at += 2
                parts.append(Text(((following, at + 1),), Quoting.QUOTED))
            elif char == "$":
                parts.append(self._dollar(Quoting.QUOTED))
            elif char == "`":
                parts.append(self._backticks(Quoting.QUOTED))
            else:
                self.at += 1
                parts.append(Text(((char, at),), Quoting.QUOTED))
        return tuple(parts)

    def _backticks(self, quoting: Quoting) -> Unknown:
        start = self.at
        self.at += 1
        while not self.peek("`"):
            if self.at_end():
                raise self.refusal("A backtick has no end", start)
            self.at += 2 if self.peek("\\") else 1
        self.at += 1
        return Unknown(start, self.at, quoting)

    def _dollar(self, quoting: Quoting) -> Part:
        start = self.at
        following = self.text[start + 1 : start + 2]
        if following == "(":
            return self._substitution(quoting)
        if following == "{":
            return self._braced(quoting)
        if following in ("'", '"') and following and quoting is Quoting.BARE:
            raise self.refusal("`$'…'` and `$\"…\"` are not understood")
        if following in ("@", "*") and following:
            self.at += 2
            return AllArguments(following, start, self.at, quoting)
        if following.isdigit():
            self.at += 2
            return Parameter(following, "", (), start, self.at, quoting)
        if following and following in _SPECIAL_PARAMETERS:
            self.at += 2
            return Unknown(start, self.at, quoting)
        found = NAME.match(self.text, start + 1)
        if found is None:
            self.at += 1
            return Text((("$", start),), quoting)
        self.at = found.end()
        return Parameter(found.group(), "", (), start, self.at, quoting)

    def _substitution(self, quoting: Quoting) -> Part:
        start = self.at
        self.at += 1
        self._skip_brackets()
        end = self.at
        if not (self.text.startswith("$((", start) and self.text.endswith("))", start, end)):
            return Unknown(start, end, quoting)
        inner = WordParser(self.text[: end - 2] + "\0", self.dialect)
        inner.at = start + 3
        return Arithmetic(inner._quoted_parts("\0", start), start, end, quoting)

    def _skip_brackets(self) -> None:
        """From `(` behind its `)`; quotes inside are respected."""
        start, depth = self.at, 0
        while True:
            if self.at_end():
                raise self.refusal("A bracket has no end", start)
            char = self.text[self.at]
            if char == "'":
                self._single_quoted()
                continue
            if char == '"':
                self._double_quoted()
                continue
            if char == "\\":
                self.at += 1
            depth += (char == "(") - (char == ")")
            self.at += 1
            if depth == 0:
                return

    def _braced(self, quoting: Quoting) -> Part:
        start = self.at
        self.at += 2
        found = _BRACED_NAME.match(self.text, self.at)
        if found is None:
            return self._unknown_braces(start, quoting)
        name = found.group()
        self.at = found.end()
        if self.peek("}"):
            self.at += 1
            return (
                AllArguments(name, start, self.at, quoting)
                if name in "@*"
                else Parameter(name, "", (), start, self.at, quoting)
            )
        operator = _PARAMETER_OPERATOR.match(self.text, self.at)
        if operator is None or name in "@*":
            return self._unknown_braces(start, quoting)
        self.at = operator.end()
        default = self._default(quoting, start)
        self.at += 1
        return Parameter(name, operator.group(), default, start, self.at, quoting)

    def _default(self, quoting: Quoting, start: int) -> tuple[Part, ...]:
        if quoting is Quoting.QUOTED:
            return self._quoted_parts("}", start)
        parts: list[Part] = []
        while not self.peek("}"):
            if self.at_end():
                raise self.refusal("`${` has no end", start)
            if self.text[self.at] in " \t\n":  # it splits the words like a blank of the value
                parts.append(Text(((self.text[self.at], self.at),), Quoting.BARE))
                self.at += 1
            else:
                parts += self._parts(-1)
        return tuple(parts)

    def _unknown_braces(self, start: int, quoting: Quoting) -> Unknown:
        """`${NAME%pattern}` and the like: skipped to the closing brace."""
        self.at = start + 2
        depth = 1
        while depth:
            if self.at_end():
                raise self.refusal("`${` has no end", start)
            char = self.text[self.at]
            if char in "'\"" and quoting is Quoting.BARE:
                self._parts(-1)
                continue
            depth += (char == "{") - (char == "}")
            self.at += 2 if char == "\\" else 1
        return Unknown(start, self.at, quoting)
