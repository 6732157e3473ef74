"""Rules that one field's type cannot say: each is written twice, in CEL and in Python, side by side.

The API server evaluates the CEL text, so that `kubectl apply` refuses a mistake at once. The Python twin
guards the operator against objects that were stored before a rule existed. Both refuse with the same
message; `tests/integration/test_crds_apiserver.py` holds the pairs equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from kneekeeper.api.quantities import parse_duration

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """One CEL expression over `self`, and what people read when it does not hold."""

    cel: str
    message: str

    def to_schema(self) -> dict[str, str]:
        return {"rule": self.cel, "message": self.message}


IMMUTABLE_CEL = "self == oldSelf"

_Check = TypeVar("_Check", bound=Callable[[Any], bool])
_ATTRIBUTE = "__kneekeeper_rule__"


def rule(cel: str, message: str) -> Callable[[_Check], _Check]:
    """Marks a model's method as the Python twin of `cel`; the method returns whether the rule holds."""

    def mark(check: _Check) -> _Check:
        setattr(check, _ATTRIBUTE, Rule(cel, message))
        return check

    return mark


@functools.cache
def rules_of(model: type) -> list[tuple[Rule, Callable[[Any], bool]]]:
    """The rules declared on a model class and its bases, in the order they were written."""
    members = {name: member for cls in reversed(model.__mro__) for name, member in vars(cls).items()}
    return [(getattr(member, _ATTRIBUTE), member) for member in members.values() if hasattr(member, _ATTRIBUTE)]


@dataclass(frozen=True)
class DurationRule:
    """Annotates a `Duration`; `holds` is the Python twin of the rule and takes seconds."""

    rule: Rule
    holds: Callable[[float], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, seconds: float) -> float:
        if not self.holds(seconds):
            raise ValueError(self.rule.message)
        return seconds

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), VALIDATIONS: [self.rule.to_schema()]}


POSITIVE = DurationRule(Rule("duration(self) > duration('0s')", "must be more than 0s"), lambda seconds: seconds > 0)


def between(lower: str, upper: str) -> DurationRule:
    """A sane range of durations, both ends included, written as durations."""
    lower_s, upper_s = parse_duration(lower), parse_duration(upper)
    return DurationRule(
        Rule(
            f"duration(self) >= duration('{lower}') && duration(self) <= duration('{upper}')",
            f"must be between {lower} and {upper}",
        ),
        lambda seconds: lower_s <= seconds <= upper_s,
    )


@dataclass(frozen=True)
class Unique:
    """Annotates a list without duplicates: of scalars, or of objects by the fields named in `keys`.

    Server-side apply then merges such a list by item instead of replacing it. The field names are the
    same in Python and in the resource, which holds for single words.
    """

    keys: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, items: Sequence[Any]) -> Sequence[Any]:
        seen: set[Hashable] = set()
        for item in items:
            identity = tuple(getattr(item, key) for key in self.keys) or item
            if identity in seen:
                raise ValueError(f"Duplicate value: {item if not self.keys else ', '.join(map(str, identity))}")
            seen.add(identity)
        return items

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if not self.keys:
            return {**handler(schema), "x-kubernetes-list-type": "set"}
        return {
            **handler(schema),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(self.keys),
        }


def explain(error: ValidationError) -> str:
    """What is wrong with a resource, one line per mistake: the field's path in it, then the rule."""
    return "\n".join(
        f"{'.'.join(str(part) for part in mistake['loc']) or 'resource'}: "
        f"{mistake['msg'].removeprefix('Value error, ')}"
        for mistake in error.errors(include_url=False, include_input=False)
    )
