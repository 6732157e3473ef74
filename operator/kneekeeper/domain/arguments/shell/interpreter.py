"""Follows a script from its beginning and lists every command with the words that it receives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.domain.arguments.environment import Environment
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.shell.expansion import Expansion, Field, Variables
from kneekeeper.domain.arguments.shell.parser import parse
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
    Simple,
)
from kneekeeper.domain.arguments.shell.word_parser import Dialect
from kneekeeper.domain.arguments.words import Word

# Builtins that may change what later words are, in ways that are not followed.
_REFUSED_BUILTINS = frozenset(
    {
        *(".", "source", "eval", "alias", "unalias", "enable", "builtin", "coproc", "shopt"),
        *("read", "mapfile", "readarray", "declare", "typeset", "local", "getopts", "let", "shift"),
    }
)
_ACTIVATE = re.compile(r".*/bin/activate")  # of a virtual environment: sets PATH, defines deactivate
_SET_OPTIONS = re.compile(r"[-+][abehkmnuvxCEHPT]*o?|pipefail|errexit|nounset|xtrace|verbose|allexport")
_EXPORTS = frozenset({"export", "readonly"})
_NAME_AND_VALUE = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)


@dataclass(frozen=True)
class Call:
    """One command of the script. `end` is the position in the script's text behind its last word."""

    fields: tuple[Field, ...]
    written: str
    end: int
    environment: Environment  # with what the script exported by then


def calls_of(script: Word, dialect: Dialect, arguments: Sequence[Word], environment: Environment) -> tuple[Call, ...]:
    """Every command that the script may run, in the order of the text. Raises RefusedError.

    `arguments` are the words behind the script: $0, $1 and so on. Whatever may or may not have happened
    (a branch, a loop, the right side of `&&`) leaves the variables that it sets unknown.
    """
    interpreter = _Interpreter(script, arguments)
    interpreter.script(parse(script.text, dialect), Variables.at_start(environment))
    return tuple(interpreter.calls)


class _Interpreter:
    def __init__(self, script: Word, arguments: Sequence[Word]) -> None:
        self._script = script
        self._arguments = arguments
        self.calls: list[Call] = []

    def script(self, script: Script, variables: Variables) -> None:
        for step in script.steps:
            self._chain(step.chain, variables.copy() if step.background else variables)

    def _chain(self, chain: Chain, variables: Variables) -> None:
        self._pipeline(chain.pipelines[0], variables)
        certain = variables.copy()
        for operator, pipeline in zip(chain.operators, chain.pipelines[1:], strict=True):
            before = variables.copy()
            self._pipeline(pipeline, variables)
            if operator == "||":
                _forget_changes(variables, before)
        _forget_changes(variables, certain)

    def _pipeline(self, pipeline: Pipeline, variables: Variables) -> None:
        alone = len(pipeline.commands) == 1
        for command in pipeline.commands:
            self._command(command, variables if alone else variables.copy())

    def _command(self, command: Command, variables: Variables) -> None:
        match command:
            case Simple():
                self._simple(command, variables)
            case Group(body=body, scope=scope):
                self.script(body, variables if scope is Scope.SAME_SHELL else variables.copy())
            case If(conditions=conditions, branches=branches):
                self._if(conditions, branches, variables)
            case Loop():
                self._loop(command, variables)
            case _:  # a test has no words that matter
                return

    def _if(self, conditions: Sequence[Script], branches: Sequence[Script], variables: Variables) -> None:
        self.script(conditions[0], variables)
        start = variables.copy()
        for script in (*conditions[1:], *branches):
            branch = start.copy()
            self.script(script, branch)
            _forget_changes(variables, branch)

    def _loop(self, loop: Loop, variables: Variables) -> None:
        """Twice: what a pass changes is not known in the next one."""
        recorded = len(self.calls)
        for _ in range(2):
            del self.calls[recorded:]
            if loop.variable is not None:
                variables.put(loop.variable, None)
            body = variables.copy()
            self.script(loop.condition, body)
            self.script(loop.body, body)
            _forget_changes(variables, body)

    def _simple(self, command: Simple, variables: Variables) -> None:
        if not command.words:
            for assignment in command.assignments:
                self._assign(assignment, variables, variables)
            return
        fields = self._expansion(variables).fields(command.words)
        own = variables.copy()
        for assignment in command.assignments:  # for this command only
            self._assign(assignment, variables, own)
        if fields:
            self._builtin(fields, variables)
        end = command.words[-1].end
        written = self._script.text[command.words[0].start : end]
        environment = Environment(dict(own.texts()), own.environment.unknown, own.environment.completeness)
        self.calls.append(Call(fields, written, end, environment))

    def _expansion(self, variables: Variables) -> Expansion:
        return Expansion(self._script, variables, self._arguments)

    def _assign(self, assignment: Assignment, variables: Variables, into: Variables) -> None:
        value, one_word = self._expansion(variables).value(assignment.value)
        if assignment.appends:
            old = variables.values.get(assignment.name, ())
            value = None if value is None or old is None else (*old, *value)
            one_word = False
        into.put(assignment.name, value, one_word=one_word)
        if assignment.name == "IFS":
            raise self._refusal("IFS=", "Words are split in another way from here on")

    def _builtin(self, fields: Sequence[Field], variables: Variables) -> None:
        name = fields[0].text
        texts = [field.text for field in fields[1:]]
        written = " ".join([name, *texts[:1]])
        if name in (".", "source") and len(texts) == 1 and _ACTIVATE.fullmatch(texts[0]):
            return
        if name in _REFUSED_BUILTINS or (name == "printf" and "-v" in texts):
            raise self._refusal(written, "What this does to the words that follow is not followed")
        if name == "set" and not all(_SET_OPTIONS.fullmatch(text) for text in texts):
            raise self._refusal(written, "This changes the script's own arguments, or how words are read")
        if name == "unset":
            for text in texts:
                variables.put(text, ())
        if name in _EXPORTS:
            for field in fields[1:]:
                self._export(field, variables)

    def _export(self, field: Field, variables: Variables) -> None:
        found = _NAME_AND_VALUE.match(field.text)
        if found is None:
            if field.doubt is not None or field.unresolved:
                raise self._refusal(field.text, "It is not known which variable is set")
            return
        certain = field.doubt is None and not field.unresolved
        variables.put(found.group(1), field.glyphs[found.end() :] if certain else None)

    def _refusal(self, piece: str, problem: str) -> RefusedError:
        return RefusedError(
            RefusalReason.SHELL_COMMAND,
            piece,
            f"{problem} in the shell script",
            "Write the container's command as a list, or the script without it.",
        )


def _forget_changes(variables: Variables, other: Variables) -> None:
    """What is not the same in both is not known."""
    for name in variables.values.keys() | other.values.keys():
        known = variables.values.get(name, ()) == other.values.get(name, ())
        if not known or (name in variables.single) != (name in other.single):
            variables.put(name, None)
    variables.set_by_script |= other.set_by_script
