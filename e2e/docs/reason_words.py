"""Reasons of conditions, and how runs end and wait, read off the code that gives them.

Each place of the code that sets a condition, ends a run or lets it wait gives a reason and a message. Reasons are
followed through constants, local variables and choices between two; messages are shown with `…` for what is filled in.
A reason that comes from elsewhere must be known to `_PASSED_ON`, so that none is left out in silence.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path

import kneekeeper
from kneekeeper.api.model import ConditionStatus
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.domain.observation import ObstacleReason
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.domain.production_choice import Lack
from kneekeeper.domain.ramp import LadderEnd

PACKAGE = Path(inspect.getfile(kneekeeper)).parent
FILLED_IN = "…"

WAITS = "What a run waits for"
CAUSES = "How a run ends"
STARTS = "Engines that do not start"
ARGUMENTS = "Arguments that are not understood"
NOT_ACTED_ON = "Not acted on"
"""Sections of what is told beside the types of conditions."""

_PASSED_ON: Mapping[str, str] = {
    # The variable that holds a reason which was given elsewhere, and where that is told; "" for the same section.
    **dict.fromkeys(
        ("active", "choice", "condition", "ended", "hold", "obstacle", "order", "problem", "report", "status"), ""
    ),
    **dict.fromkeys(
        (
            "applied",
            "bounds",
            "needed",
            "recommended",
            "refusal",
            "stop",
            "target",
            "trouble",
            "unfit",
            "wanted",
            "where",
        ),
        "",
    ),
    **dict.fromkeys(("after", "answer", "fields", "words"), ARGUMENTS),
    **dict.fromkeys(("engine", "failure", "upgrade"), STARTS),
    "last": CAUSES,
    "lack": "",
    **dict.fromkeys(("evidence", "prediction"), WAITS),
}
_ENUMS: Mapping[str, type[StrEnum]] = {
    cls.__name__: cls for cls in (ConditionStatus, ConditionType, Lack, LadderEnd, ObstacleReason, RunOutcome)
}
_STATUS = {"true": "True", "false": "False", "unknown": "Unknown"}


class UnknownReasonError(Exception):
    """A reason that the page cannot tell; the message says where it is given and what to do."""


@dataclass(frozen=True)
class Told:
    """One reason: the section of the page, the condition's status or the run's outcome there, and the message.

    A reason in brackets names the section that tells which ones it may be.
    """

    section: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class _Giver:
    """A call, or a function that returns a tuple, which gives a reason; by the file it stands in."""

    files: str
    name: str
    section: str
    status: str = ""
    reason_at: int = 0
    message_at: int = 1
    status_at: int | None = None
    """Of the argument that is the status, where it is not always the same."""


_CALLS = (
    _Giver("domain/plan/*", "SpecProblem", ConditionType.ACCEPTED, "False"),
    _Giver("domain/target.py", "TargetProblem", ConditionType.TARGET_FOUND, "False"),
    _Giver("domain/plan/*", "Hold", ConditionType.PROBING, "False"),
    _Giver("domain/plan/*", "WantedRun", ConditionType.PROBING, "False", 2, 3),
    _Giver("domain/targets/fields.py", "NotWritable", ConditionType.APPLIED, "False"),
    _Giver("domain/plan/*", "waiting", WAITS, "", 1, 2),
    _Giver("domain/plan/*", "_wait", WAITS, "", 1, 2),
    _Giver("domain/plan/run_borrow.py", "NotToBorrow", WAITS),
    _Giver("domain/plan/run_in_place.py", "NotInPlace", WAITS),
    _Giver("domain/plan/run_in_place.py", "_looking", WAITS, "", 1, 2),
    _Giver("domain/plan/run_preflight.py", "_Nowhere", WAITS),
    _Giver("domain/*", "NotEnough", WAITS),
    _Giver("domain/plan/*", "ended", CAUSES, "", 2, 3, status_at=1),
    _Giver("domain/plan/*", "cut_short", CAUSES, "", 2, 3, status_at=1),
    _Giver("domain/plan/run_borrow.py", "_given_up", CAUSES, RunOutcome.CANCELLED, 1, 2),
    _Giver("domain/plan/run_in_place.py", "_let_alone", CAUSES, "", 2, 3, status_at=1),
    _Giver("domain/ladder.py", "LadderDone", CAUSES, RunOutcome.INCONCLUSIVE),
    _Giver("domain/choose.py", "NoChoice", CAUSES, "", status_at=0),
    _Giver("*", "Obstacle", CAUSES, RunOutcome.FAILED),
    _Giver("domain/plan/run_live.py", "_told", ConditionType.LIVE_TUNING, "", 3, 4, status_at=2),
    _Giver("domain/plan/run_live.py", "_Problem", ConditionType.LIVE_TUNING, "False"),
    _Giver("domain/plan/live_scope.py", "ByRollout", ConditionType.LIVE_CHANGES, "False"),
    _Giver("domain/plan/profile_live.py", "_Found", ConditionType.LIVE_CHANGES, "False"),
    _Giver("livetune/environment.py", "Refusal", ConditionType.LIVE_CHANGES, "False"),
    _Giver("livetune/limits.py", "Refusal", ConditionType.LIVE_TUNING, "False"),
    _Giver("livetune/scheduler_hook.py", "Refusal", ConditionType.LIVE_TUNING, "False"),
)
_RETURNS = (
    _Giver("domain/plan/profile_apply.py", "_refusal", ConditionType.APPLIED, "False"),
    _Giver("domain/plan/profile_apply.py", "no_surge_room", ConditionType.APPLIED, "False"),
    _Giver("domain/plan/run.py", "_reason_to_stop", CAUSES, RunOutcome.CANCELLED),
    _Giver("domain/plan/run_borrow.py", "reason_to_return", CAUSES, RunOutcome.CANCELLED),
)
_UNSUPPORTED = _Giver("domain/plan/acceptance.py", "_not_acted_on", NOT_ACTED_ON)


@dataclass(frozen=True)
class _Place:
    """A function of the code, and all constants that its names may mean."""

    file: str
    function: ast.FunctionDef | ast.AsyncFunctionDef
    constants: Mapping[str, Sequence[ast.expr]]

    def values_of(self, name: str) -> Sequence[ast.expr]:
        """What the function assigns to the name, else the constants of that name."""
        local = [value for node in ast.walk(self.function) for key, value in _assigned(node) if key == name]
        return local or self.constants.get(name, [])

    def is_parameter(self, name: str) -> bool:
        """Whether the reason was given by whoever calls the function, where it is told."""
        arguments = self.function.args
        return any(name == argument.arg for argument in (*arguments.args, *arguments.kwonlyargs))


def told(package: Path = PACKAGE) -> list[Told]:
    """All that the code of a package laid out as kneekeeper may say, in its order, none twice.

    Raises UnknownReasonError where a reason cannot be followed.
    """
    trees = {
        path.relative_to(package).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(package.rglob("*.py"))
    }
    constants: dict[str, list[ast.expr]] = {}
    for tree in trees.values():
        for name, value in (pair for statement in tree.body for pair in _assigned(statement)):
            constants.setdefault(name, []).append(value)
    places = (
        _Place(file, node, constants)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return list(dict.fromkeys(one for place in places for one in _in_place(place)))


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are set to; pairs are taken apart."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                names = [one.id if isinstance(one, ast.Name) else "" for one in target.elts]
                yield from zip(names, node.value.elts, strict=False)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value


def _in_place(place: _Place) -> Iterator[Told]:
    for node in ast.walk(place.function):
        if isinstance(node, ast.Call):
            yield from _of_call(place, node)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for giver in _matching(_RETURNS, place.file, place.function.name):
                yield from _given(place, giver, node.value.elts)
        if isinstance(node, ast.Yield) and node.value is not None:
            for giver in _matching((_UNSUPPORTED,), place.file, place.function.name):
                yield Told(giver.section, "", "", text_of(place, node.value))


def _of_call(place: _Place, call: ast.Call) -> Iterator[Told]:
    functions = [call.func.body, call.func.orelse] if isinstance(call.func, ast.IfExp) else [call.func]
    for function in functions:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        for giver in _matching(_CALLS, place.file, name):
            yield from _given(place, giver, call.args)
        if name in _STATUS and (type_ := _condition(call.args[:1])) is not None:
            yield from _given(place, _Giver(place.file, name, type_, _STATUS[name], 1, 2), call.args)
        if name == "set_condition" and (type_ := _condition(call.args[1:2])) is not None:
            yield from _given(place, _Giver(place.file, name, type_, "", 3, 4, status_at=2), call.args)


def _matching(givers: Sequence[_Giver], file: str, name: str) -> Iterator[_Giver]:
    return (giver for giver in givers if giver.name == name and fnmatch(file, giver.files))


def _condition(argument: Sequence[ast.expr]) -> ConditionType | None:
    match argument:
        case [ast.Attribute(value=ast.Name(id="ConditionType"), attr=name)]:
            return ConditionType[name]
        case _:
            return None


def _given(place: _Place, giver: _Giver, arguments: Sequence[ast.expr]) -> Iterator[Told]:
    if len(arguments) <= giver.reason_at:
        return
    message = text_of(place, arguments[giver.message_at]) if len(arguments) > giver.message_at else ""
    at = giver.status_at
    for status in [giver.status] if at is None else list(_words(place, arguments[at])):
        for reason in _words(place, arguments[giver.reason_at]):
            if reason not in ("", FILLED_IN):
                yield Told(giver.section, status, reason, message)


def _words(place: _Place, reason: ast.expr) -> Iterator[str]:
    """What a reason may be; "" where it is told elsewhere."""
    match reason:
        case ast.Constant(value=str(word)):
            yield word
        case ast.JoinedStr():
            yield text_of(place, reason)
        case ast.IfExp(body=one, orelse=other):
            yield from _words(place, one)
            yield from _words(place, other)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _words(place, value)
        case ast.Attribute(value=ast.Name(id=cls), attr=member) if cls in _ENUMS:
            yield _ENUMS[cls][member]
        case ast.Attribute(attr=name) if name.isupper() and (constants := place.values_of(name)):
            for value in constants:
                yield from _words(place, value)
        case ast.Name(id=name) if held := place.values_of(name):
            for value in held:
                yield from _words(place, value)
        case ast.Name(id=name) if place.is_parameter(name):
            yield ""
        case _:
            yield _passed_on(place, reason)


def _passed_on(place: _Place, reason: ast.expr) -> str:
    held_by = next((node.id for node in ast.walk(reason) if isinstance(node, ast.Name)), "")
    if held_by not in _PASSED_ON:
        raise UnknownReasonError(
            f"{place.file}, line {reason.lineno}: where the reason {ast.unparse(reason)} comes from is not known. "
            "Give it as a constant, or add what holds it to _PASSED_ON in e2e/docs/reason_words.py."
        )
    section = _PASSED_ON[held_by]
    return f"[{section}]" if section else ""


def text_of(place: _Place, message: ast.expr) -> str:
    """A message with … for what is filled in; empty where it comes from elsewhere."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED_IN for part in values)
        case ast.Name(id=name):
            texts = {text_of(place, value) for value in place.values_of(name)}
            return texts.pop() if len(texts) == 1 else ""
        case _:
            return ""
