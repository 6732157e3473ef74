"""A container's environment variables as far as they are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Content(StrEnum):
    """What is known of a value that was not read."""

    ANYTHING = "Anything"  # a Secret's, or a ConfigMap's that is not at hand
    ONE_WORD = "OneWord"  # a pod's field: an address, a name, a number


class Completeness(StrEnum):
    """Whether a variable that is not named here may be set all the same."""

    COMPLETE = "Complete"
    PARTIAL = "Partial"  # `envFrom` takes in a source that was not read


@dataclass(frozen=True)
class Environment(Mapping[str, str]):
    """The values that are known, by name; `unknown` are the names that are set to something not known, `fixed` those
    whose value stands elsewhere, so that no other one can be written in its place.

    Never holds the value of a Secret. Variables that the image or the kubelet add by themselves are not seen.
    """

    values_by_name: Mapping[str, str]
    unknown: Mapping[str, Content] = field(default_factory=dict)
    completeness: Completeness = Completeness.COMPLETE
    fixed: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> str:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def may_be_set(self, name: str) -> bool:
        """Whether `name` may have a value that is not known."""
        return name not in self.values_by_name and (name in self.unknown or self.completeness is Completeness.PARTIAL)


def environment_of(env: Mapping[str, str]) -> Environment:
    """`env` as an Environment; a plain mapping is taken for complete."""
    return env if isinstance(env, Environment) else Environment(env)
