"""From a script's text to its tree, or a RefusedError that names what is not understood.

Written here for these reasons: the parsers of the package registry are GPL (bashlex), or made for editors and
silently wrong where it matters (tree-sitter-bash reads the words behind `> file` as more file names and knows
no brace expansion); and only a strict parser may be the base of a proof.
"""

from __future__ import annotations

import re

from kneekeeper.domain.arguments.shell.syntax import (
    Assignment,
    Chain,
    Command,
    Group,
    If,
    Loop,
    Pipeline,
    Scope,
    Script,
    ShellWord,
    Simple,
    Step,
    Test,
)
from kneekeeper.domain.arguments.shell.word_parser import NAME, Dialect, WordParser

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_REDIRECTION = re.compile(r"\d*(<<-?|<<<|>>|<&|>&|<>|>\||<|>)")
_BASH_REDIRECTION = re.compile(r"&>>?")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|coproc|time|[{}!]|\[\[)(?=[\s;&|()]|$)"
)
_REFUSED_WORDS = ("case", "select", "function", "coproc", "time")


def parse(text: str, dialect: Dialect) -> Script:
    """The script's tree. Raises RefusedError."""
    parser = _Parser(text, dialect)
    script = parser.script(())
    if not parser.at_end():
        raise parser.refusal("This stands where no command may stand")
    return script


class _Parser(WordParser):
    # Commands

    def script(self, ends: tuple[str, ...]) -> Script:
        """Steps up to a reserved word or bracket of `ends`, which is not taken."""
        steps: list[Step] = []
        while True:
            self._skip_lines()
            if self.at_end() or self.peek(")") or self._reserved() in ends:
                return Script(tuple(steps))
            chain = self._chain()
            self._skip_blanks()
            background = self.peek("&")
            if self.peek(";;"):
                raise self.refusal("`;;` has no `case`")
            if background or self.peek(";"):
                self.at += 1
            elif not (self.at_end() or self.peek("\n") or self.peek(")") or self.peek("#")):
                raise self.refusal("A command does not end here")
            steps.append(Step(chain, background))

    def _chain(self) -> Chain:
        pipelines = [self._pipeline()]
        operators: list[str] = []
        while True:
            self._skip_blanks()
            operator = self.text[self.at : self.at + 2]
            if operator not in ("&&", "||"):
                return Chain(tuple(pipelines), tuple(operators))
            self.at += 2
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
            if not self.peek("|") or self.peek("||"):
                return Pipeline(tuple(commands))
            self.at += 2 if self.peek("|&") and self.dialect is Dialect.BASH else 1
            self._skip_lines()
            commands.append(self._command())

    def _command(self) -> Command:
        self._skip_blanks()
        reserved = self._reserved()
        if reserved in _REFUSED_WORDS:
            raise self.refusal(f"`{reserved}` is not understood")
        if self.peek("(("):
            raise self.refusal("`((` is not understood")
        command: Command
        if self.peek("("):
            self.at += 1
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
            found = NAME.match(self.text, self.at)
            if found is None:
                raise self.refusal("This `for` is not understood")
            variable, self.at = found.group(), found.end()
            while not (self.at_end() or self.peek("\n") or self.peek(";")):
                self._skip_blanks()
                if not (self.at_end() or self.peek("\n") or self.peek(";") or self.word().parts):
                    raise self.refusal("This `for` is not understood")
            self._skip_separator()
        else:
            condition = self._body(("do",))
        self._take_reserved("do")
        body = self._body(("done",))
        self._take_reserved("done")
        return Loop(variable, condition, body)

    def _test(self) -> Test:
        if self.dialect is not Dialect.BASH:
            raise self.refusal("`[[` is bash, and this shell may be another")
        start = self.at
        while not self.at_end():
            self._skip_blanks()
            if self.text.startswith("]]", self.at):
                self.at += 2
                return Test()
            if self.text[self.at : self.at + 1] in ("\n", ";", ""):
                break
            if self.text[self.at] in "&|()<>":
                self.at += 1
            else:
                self.word()
        raise self.refusal("`[[` has no end", start)

    def _simple(self) -> Simple:
        start = self.at
        assignments: list[Assignment] = []
        words: list[ShellWord] = []
        while True:
            self._skip_blanks()
            if self._take_redirection():
                continue
            if self.at_end() or self.text[self.at] in "\n;&|)":
                break
            if self.peek("#"):
                break
            if self.peek("("):
                raise self.refusal("A function or an array is not understood", start)
            found = _ASSIGNMENT.match(self.text, self.at)
            if found is not None and not words:
                assignments.append(self._assignment(found))
            else:
                words.append(self.word())
        if self.at == start:
            raise self.refusal("A command is missing")
        return Simple(tuple(assignments), tuple(words))

    def _assignment(self, found: re.Match[str]) -> Assignment:
        name, appends = found.groups()
        if appends and self.dialect is not Dialect.BASH:
            raise self.refusal("`+=` is bash, and this shell may be another")
        self.at = found.end()
        if self.peek("("):
            raise self.refusal("An array is not understood", found.start())
        return Assignment(name, appends, self.word())

    def _take_redirections(self) -> None:
        while True:
            self._skip_blanks()
            if not self._take_redirection():
                return

    def _take_redirection(self) -> bool:
        found = _BASH_REDIRECTION.match(self.text, self.at)
        if found is not None and self.dialect is not Dialect.BASH:
            raise self.refusal("`&>` means different things in different shells")
        found = found or _REDIRECTION.match(self.text, self.at)
        if found is None:
            return False
        if "<<" in found.group():
            raise self.refusal("A here-document or here-string is not understood")
        self.at = found.end()
        if self.peek("("):
            raise self.refusal("A process substitution is not understood", found.start())
        self._skip_blanks()
        if not self.word().parts:
            raise self.refusal("A redirection has no file", found.start())
        return True

    # Blanks and reserved words

    def _take(self, text: str) -> None:
        if not self.peek(text):
            raise self.refusal(f"`{text}` is missing")
        self.at += len(text)

    def _reserved(self) -> str | None:
        found = _RESERVED.match(self.text, self.at)
        return found.group() if found else None

    def _take_reserved(self, word: str) -> None:
        if self._reserved() != word:
            raise self.refusal(f"`{word}` is missing")
        self.at += len(word)
        self._skip_blanks()

    def _skip_blanks(self) -> None:
        """Spaces, tabs and lines that go on."""
        while not self.at_end():
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.peek("\\\n"):
                self.at += 2
            else:
                return

    def _skip_lines(self) -> None:
        """Also ends of lines and comments."""
        while True:
            self._skip_blanks()
            if self.peek("\n"):
                self.at += 1
            elif self.peek("#"):
                self.at = (self.text + "\n").index("\n", self.at)
            else:
                return

    def _skip_separator(self) -> None:
        if self.peek(";"):
            self.at += 1
        self._skip_lines()
