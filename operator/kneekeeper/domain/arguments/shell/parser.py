"""From a script's text to its tree, or a RefusedError that names what is not understood.

Written here for these reasons: the parsers of the package registry are GPL (bashlex), or made for editors and
silently wrong where it matters (tree-sitter-bash reads the words behind `> file` as more file names and knows
no brace expansion); and only a strict parser may be the base of a proof.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.shell.syntax import (
    AllArguments,
    Arithmetic,
    Assignment,
    Chain,
    Command,
    Group,
    If,
    Loop,
    Parameter,
    Part,
    Pipeline,
    Quoting,
    Scope,
    Script,
    ShellWord,
    Simple,
    Step,
    Test,
    Text,
    Unknown,
)

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_REDIRECTION = re.compile(r"\d*(<<-?|<<<|>>|<&|>&|<>|>\||<|>)")
_BASH_REDIRECTION = re.compile(r"&>>?")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|coproc|time|[{}!]|\[\[)(?=[\s;&|()]|$)"
)
_PARAMETER_OPERATOR = re.compile(r":?[-=+?]")
_SPECIAL_PARAMETERS = "?#$!-"
_WORD_ENDS = " \t\n;&|()<>"
_REFUSED_WORDS = ("case", "select", "function", "coproc", "time")


class Dialect(StrEnum):
    """What the shell is known to be."""

    POSIX = "POSIX"  # sh: dash, ash or bash, so that only what they share is understood
    BASH = "Bash"


def parse(text: str, dialect: Dialect) -> Script:
    """The script's tree. Raises RefusedError."""
    parser = _Parser(text, dialect)
    script = parser.script(())
    if not parser.at_end():
        raise parser.refusal("This stands where no command may stand")
    return script


class _Parser:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._at = 0

    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def refusal(self, problem: str, start: int | None = None) -> RefusedError:
        at = self._at if start is None else start
        piece = self._text[at : at + 40].split("\n")[0] or "the end of the script"
        return RefusedError(
            RefusalReason.SHELL_COMMAND,
            piece,
            f"{problem} in the shell script",
            "Write the container's command as a list, or the script without it.",
        )

    # Commands

    def script(self, ends: tuple[str, ...]) -> Script:
        """Steps up to a reserved word or bracket of `ends`, which is not taken."""
        steps: list[Step] = []
        while True:
            self._skip_lines()
            if self.at_end() or self._peek(")") or self._reserved() in ends:
                return Script(tuple(steps))
            chain = self._chain()
            self._skip_blanks()
            background = self._peek("&")
            if self._peek(";;"):
                raise self.refusal("`;;` has no `case`")
            if background or self._peek(";"):
                self._at += 1
            elif not (self.at_end() or self._peek("\n") or self._peek(")") or self._peek("#")):
                raise self.refusal("A command does not end here")
            steps.append(Step(chain, background))

    def _chain(self) -> Chain:
        pipelines = [self._pipeline()]
        operators: list[str] = []
        while True:
            self._skip_blanks()
            operator = self._text[self._at : self._at + 2]
            if operator not in ("&&", "||"):
                return Chain(tuple(pipelines), tuple(operators))
            self._at += 2
            self._skip_lines()
            operators.append(operator)
            pipelines.append(self._pipeline())

    def _pipeline(self) -> Pipeline:
        self._skip_blanks()
        while self._reserved() == "!":
            self._take_reserved("!")
        commands = [self._command()]
        while True:
            self._skip_blanks()
            if not self._peek("|") or self._peek("||"):
                return Pipeline(tuple(commands))
            self._at += 2 if self._peek("|&") and self._dialect is Dialect.BASH else 1
            self._skip_lines()
            commands.append(self._command())

    def _command(self) -> Command:
        self._skip_blanks()
        reserved = self._reserved()
        if reserved in _REFUSED_WORDS:
            raise self.refusal(f"`{reserved}` is not understood")
        if self._peek("(("):
            raise self.refusal("`((` is not understood")
        command: Command
        if self._peek("("):
            self._at += 1
            command = Group(self._body((")",)), Scope.SUBSHELL)
            self._take(")")
        elif reserved == "{":
            self._take_reserved("{")
            command = Group(self._body(("}",)), Scope.SAME_SHELL)
            self._take_reserved("}")
        elif reserved == "if":
            command = self._if()
        elif reserved in ("while", "until", "for"):
            command = self._loop(reserved)
        elif reserved == "[[":
            command = self._test()
        elif reserved is not None:
            raise self.refusal(f"`{reserved}` has no beginning")
        else:
            return self._simple()
        self._take_redirections()
        return command

    def _body(self, ends: tuple[str, ...]) -> Script:
        script = self.script(ends)
        if not script.steps:
            raise self.refusal("A command is missing")
        return script

    def _if(self) -> If:
        self._take_reserved("if")
        conditions = [self._body(("then",))]
        branches: list[Script] = []
        self._take_reserved("then")
        branches.append(self._body(("elif", "else", "fi")))
        while self._reserved() == "elif":
            self._take_reserved("elif")
            conditions.append(self._body(("then",)))
            self._take_reserved("then")
            branches.append(self._body(("elif", "else", "fi")))
        if self._reserved() == "else":
            self._take_reserved("else")
            branches.append(self._body(("fi",)))
        self._take_reserved("fi")
        return If(tuple(conditions), tuple(branches))

    def _loop(self, kind: str) -> Loop:
        self._take_reserved(kind)
        variable, condition = None, Script(())
        if kind == "for":
            self._skip_blanks()
            found = _NAME.match(self._text, self._at)
            if found is None:
                raise self.refusal("This `for` is not understood")
            variable, self._at = found.group(), found.end()
            while not (self.at_end() or self._peek("\n") or self._peek(";")):
                self._skip_blanks()
                if not (self.at_end() or self._peek("\n") or self._peek(";") or self._word().parts):
                    raise self.refusal("This `for` is not understood")
            self._skip_separator()
        else:
            condition = self._body(("do",))
        self._take_reserved("do")
        body = self._body(("done",))
        self._take_reserved("done")
        return Loop(variable, condition, body)

    def _test(self) -> Test:
        if self._dialect is not Dialect.BASH:
            raise self.refusal("`[[` is bash, and this shell may be another")
        start = self._at
        while not self.at_end():
            self._skip_blanks()
            if self._text.startswith("]]", self._at):
                self._at += 2
                return Test()
            if self._text[self._at : self._at + 1] in ("\n", ";", ""):
                break
            if self._text[self._at] in "&|()<>":
                self._at += 1
            else:
                self._word()
        raise self.refusal("`[[` has no end", start)

    def _simple(self) -> Simple:
        start = self._at
        assignments: list[Assignment] = []
        words: list[ShellWord] = []
        while True:
            self._skip_blanks()
            if self._take_redirection():
                continue
            if self.at_end() or self._text[self._at] in "\n;&|)":
                break
            if self._peek("#"):
                break
            if self._peek("("):
                raise self.refusal("A function or an array is not understood", start)
            found = _ASSIGNMENT.match(self._text, self._at)
            if found is not None and not words:
                assignments.append(self._assignment(found))
            else:
                words.append(self._word())
        if self._at == start:
            raise self.refusal("A command is missing")
        return Simple(tuple(assignments), tuple(words))

    def _assignment(self, found: re.Match[str]) -> Assignment:
        name, appends = found.groups()
        if appends and self._dialect is not Dialect.BASH:
            raise self.refusal("`+=` is bash, and this shell may be another")
        self._at = found.end()
        if self._peek("("):
            raise self.refusal("An array is not understood", found.start())
        return Assignment(name, appends, self._word())

    def _take_redirections(self) -> None:
        while True:
            self._skip_blanks()
            if not self._take_redirection():
                return

    def _take_redirection(self) -> bool:
        found = _BASH_REDIRECTION.match(self._text, self._at)
        if found is not None and self._dialect is not Dialect.BASH:
            raise self.refusal("`&>` means different things in different shells")
        found = found or _REDIRECTION.match(self._text, self._at)
        if found is None:
            return False
        if "<<" in found.group():
            raise self.refusal("A here-document or here-string is not understood")
        self._at = found.end()
        if self._peek("("):
            raise self.refusal("A process substitution is not understood", found.start())
        self._skip_blanks()
        if not self._word().parts:
            raise self.refusal("A redirection has no file", found.start())
        return True

    # Blanks and reserved words

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> None:
        if not self._peek(text):
            raise self.refusal(f"`{text}` is missing")
        self._at += len(text)

    def _reserved(self) -> str | None:
        found = _RESERVED.match(self._text, self._at)
        return found.group() if found else None

    def _take_reserved(self, word: str) -> None:
        if self._reserved() != word:
            raise self.refusal(f"`{word}` is missing")
        self._at += len(word)
        self._skip_blanks()

    def _skip_blanks(self) -> None:
        """Spaces, tabs and lines that go on."""
        while not self.at_end():
            if self._text[self._at] in " \t":
                self._at += 1
            elif self._peek("\\\n"):
                self._at += 2
            else:
                return

    def _skip_lines(self) -> None:
        """Also ends of lines and comments."""
        while True:
            self._skip_blanks()
            if self._peek("\n"):
                self._at += 1
            elif self._peek("#"):
                self._at = (self._text + "\n").index("\n", self._at)
            else:
                return

    def _skip_separator(self) -> None:
        if self._peek(";"):
            self._at += 1
        self._skip_lines()

    # Words

    def _word(self) -> ShellWord:
        """One word; without parts where none begins here."""
        start = self._at
        parts: list[Part] = []
        while not self.at_end() and self._text[self._at] not in _WORD_ENDS:
            if self._peek("\\\n"):
                self._at += 2
            else:
                parts += self._parts(start)
        return ShellWord(tuple(parts), start, self._at)

    def _parts(self, word_start: int) -> Sequence[Part]:
        if self._peek('"'):
            return self._double_quoted()
        return (self._part(word_start),)

    def _part(self, word_start: int) -> Part:
        start, char = self._at, self._text[self._at]
        if char == "\\":
            if start + 1 >= len(self._text):
                raise self.refusal("The script ends with a backslash")
            self._at += 2
            return Text(((self._text[start + 1], start + 1),), Quoting.QUOTED)
        if char == "'":
            return self._single_quoted()
        if char == "$":
            return self._dollar(Quoting.BARE)
        if char == "`":
            return self._backticks(Quoting.BARE)
        if char == "~" and (start == word_start or self._text[start - 1] in "=:"):
            self._at += 1
            return Unknown(start, self._at, Quoting.QUOTED)  # a path: one word, whatever it holds
        self._at += 1
        return Text(((char, start),), Quoting.BARE)

    def _single_quoted(self) -> Text:
        start = self._at
        end = self._text.find("'", start + 1)
        if end < 0:
            raise self.refusal("A quote has no end", start)
        self._at = end + 1
        return Text(tuple((self._text[at], at) for at in range(start + 1, end)), Quoting.QUOTED)

    def _double_quoted(self) -> tuple[Part, ...]:
        start = self._at
        self._at += 1
        parts = self._quoted_parts('"', start)
        self._at += 1
        return parts or (Text((), Quoting.QUOTED),)

    def _quoted_parts(self, end: str, start: int) -> tuple[Part, ...]:
        """Up to the character `end`, which is not taken, by the rules of double quotes."""
        parts: list[Part] = []
        while not self._peek(end):
            if self.at_end():
                raise self.refusal("A quote has no end", start)
            at, char = self._at, self._text[self._at]
            following = self._text[at + 1 : at + 2]
            if char == '"':
                raise self.refusal("Quotes inside `${…}` inside quotes are not understood")
            if char == "\\" and following == "\n":
                self._at += 2
            elif char == "\\" and following and following in '$`"\\' + end:
                self._at += 2
                parts.append(Text(((following, at + 1),), Quoting.QUOTED))
            elif char == "$":
                parts.append(self._dollar(Quoting.QUOTED))
            elif char == "`":
                parts.append(self._backticks(Quoting.QUOTED))
            else:
                self._at += 1
                parts.append(Text(((char, at),), Quoting.QUOTED))
        return tuple(parts)

    def _backticks(self, quoting: Quoting) -> Unknown:
        start = self._at
        self._at += 1
        while not self._peek("`"):
            if self.at_end():
                raise self.refusal("A backtick has no end", start)
            self._at += 2 if self._peek("\\") else 1
        self._at += 1
        return Unknown(start, self._at, quoting)

    def _dollar(self, quoting: Quoting) -> Part:
        start = self._at
        following = self._text[start + 1 : start + 2]
        if following == "(":
            return self._substitution(quoting)
        if following == "{":
            return self._braced(quoting)
        if following in ("'", '"') and following and quoting is Quoting.BARE:
            raise self.refusal("`$'…'` and `$\"…\"` are not understood")
        if following in ("@", "*") and following:
            self._at += 2
            return AllArguments(following, start, self._at, quoting)
        if following.isdigit():
            self._at += 2
            return Parameter(following, "", (), start, self._at, quoting)
        if following and following in _SPECIAL_PARAMETERS:
            self._at += 2
            return Unknown(start, self._at, quoting)
        found = _NAME.match(self._text, start + 1)
        if found is None:
            self._at += 1
            return Text((("$", start),), quoting)
        self._at = found.end()
        return Parameter(found.group(), "", (), start, self._at, quoting)

    def _substitution(self, quoting: Quoting) -> Part:
        start = self._at
        self._at += 1
        self._skip_brackets()
        end = self._at
        if not (self._text.startswith("$((", start) and self._text.endswith("))", start, end)):
            return Unknown(start, end, quoting)
        inner = _Parser(self._text[: end - 2] + "\0", self._dialect)
        inner._at = start + 3
        return Arithmetic(inner._quoted_parts("\0", start), start, end, quoting)

    def _skip_brackets(self) -> None:
        """From `(` behind its `)`; quotes inside are respected."""
        start, depth = self._at, 0
        while True:
            if self.at_end():
                raise self.refusal("A bracket has no end", start)
            char = self._text[self._at]
            if char == "'":
                self._single_quoted()
                continue
            if char == '"':
                self._double_quoted()
                continue
            if char == "\\":
                self._at += 1
            depth += (char == "(") - (char == ")")
            self._at += 1
            if depth == 0:
                return

    def _braced(self, quoting: Quoting) -> Part:
        start = self._at
        self._at += 2
        found = re.compile(r"[A-Za-z_]\w*|\d+|[@*]", re.ASCII).match(self._text, self._at)
        if found is None:
            return self._unknown_braces(start, quoting)
        name = found.group()
        self._at = found.end()
        if self._peek("}"):
            self._at += 1
            return (
                AllArguments(name, start, self._at, quoting)
                if name in "@*"
                else Parameter(name, "", (), start, self._at, quoting)
            )
        operator = _PARAMETER_OPERATOR.match(self._text, self._at)
        if operator is None or name in "@*":
            return self._unknown_braces(start, quoting)
        self._at = operator.end()
        default = self._default(quoting, start)
        self._at += 1
        return Parameter(name, operator.group(), default, start, self._at, quoting)

    def _default(self, quoting: Quoting, start: int) -> tuple[Part, ...]:
        if quoting is Quoting.QUOTED:
            return self._quoted_parts("}", start)
        parts: list[Part] = []
        while not self._peek("}"):
            if self.at_end():
                raise self.refusal("`${` has no end", start)
            if self._text[self._at] in " \t\n":  # it splits the words like a blank of the value
                parts.append(Text(((self._text[self._at], self._at),), Quoting.BARE))
                self._at += 1
            else:
                parts += self._parts(-1)
        return tuple(parts)

    def _unknown_braces(self, start: int, quoting: Quoting) -> Unknown:
        """`${NAME%pattern}` and the like: skipped to the closing brace."""
        self._at = start + 2
        depth = 1
        while depth:
            if self.at_end():
                raise self.refusal("`${` has no end", start)
            char = self._text[self._at]
            if char in "'\"" and quoting is Quoting.BARE:
                self._parts(-1)
                continue
            depth += (char == "{") - (char == "}")
            self._at += 2 if char == "\\" else 1
        return Unknown(start, self._at, quoting)
