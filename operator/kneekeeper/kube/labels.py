"""Label selectors as Kubernetes defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True)
class Requirement:
    """One term of a selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """NotIn holds for an absent key, as in Kubernetes."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case Operator.IN:
                return f"{self.key} in ({','.join(self.values)})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({','.join(self.values)})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"


@dataclass(frozen=True)
class LabelSelector:
    """All requirements must hold; without any, everything is selected."""

    requirements: tuple[Requirement, ...]

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """As the `labelSelector` of a list request."""
        return ",".join(str(requirement) for requirement in self.requirements)


def equality_selector(labels: Mapping[str, str]) -> LabelSelector:
    """The selector of a Service: every label must be equal."""
    return LabelSelector(tuple(Requirement(k, Operator.IN, (v,)) for k, v in sorted(labels.items())))


def parse_selector(selector: Mapping[str, Any]) -> LabelSelector:
    """From `matchLabels` and `matchExpressions`.

    Raises ValueError for an operator that Kubernetes does not define.
    """
    equal = equality_selector(selector.get("matchLabels") or {})
    others = tuple(
        Requirement(e["key"], Operator(e["operator"]), tuple(e.get("values") or ()))
        for e in selector.get("matchExpressions") or ()
    )
    return LabelSelector(equal.requirements + others)
