"""The base of every resource model, and what all resources share."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kneekeeper.api.rules import rules_of

GROUP = "kneekeeper.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_ACRONYMS = {
    "Ttft": "TTFT",
    "Tpot": "TPOT",
    "E2e": "E2E",
    "Slo": "SLO",
    "Gpu": "GPU",
    "Kv": "KV",
    "Ip": "IP",
    "Ca": "CA",
}


def camel_case(name: str) -> str:
    """The field's name in a resource: `p99_ttft` becomes `p99TTFT`, `target_ref` `targetRef`."""
    words = name.split("_")
    return to_camel("_".join(words[:1])) + "".join(
        _ACRONYMS.get(word.capitalize(), word.capitalize()) for word in words[1:]
    )


class ApiModel(BaseModel):
    """Frozen; unknown fields are errors, since a pruned field would be a silent one.

    Rules over several fields are methods marked with `rules.rule`. `immutable` is the message that people
    read when they edit an object of this class after it was made; only the API server can tell.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=camel_case, populate_by_name=True, validate_default=True
    )

    immutable: ClassVar[str | None] = None

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        broken = [rule.message for rule, holds in rules_of(type(self)) if not holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    def to_resource(self) -> dict[str, Any]:
        """As it stands in the resource: camelCase, without what is None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def with_changes(self, **changes: Any) -> Self:
        """A validated copy with some fields replaced.

        Raises pydantic.ValidationError where a change does not fit.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(values | changes))


def _rfc3339(value: datetime) -> str:
    return value.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


Timestamp = Annotated[
    AwareDatetime,
    PlainSerializer(_rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An aware datetime in Python, RFC 3339 with whole seconds in the resource."""


Count = Annotated[int, Field(ge=0, le=2**53)]
"""A number of things; up to what JSON carries exactly."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253)]

NAME_RULE = (
    "size(self.metadata.name) <= 63",
    "the name may have at most 63 characters, since it becomes a label of what kneekeeper makes",
)
"""CEL and message; the Python twin is `name_fits_a_label`."""


def name_fits_a_label(metadata: dict[str, Any]) -> bool:
    return len(metadata.get("name", "")) <= 63


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """A Kubernetes condition."""

    type: str = Field(max_length=64, description="What is judged, for example Ready.")
    status: ConditionStatus = Field(description="Whether it holds.")
    reason: str = Field(
        max_length=64,
        pattern=r"^[A-Z][A-Za-z0-9]*$",
        description="Why, in one CamelCase word that programs may rely on.",
    )
    message: str = Field(default="", max_length=2048, description="Why, for people, with the next step.")
    observed_generation: Count = Field(default=0, description="The generation of the spec it was judged for.")
    last_transition_time: Timestamp = Field(description="When the status last changed.")


class Setting(ApiModel):
    """The two limits that kneekeeper tunes."""

    max_num_seqs: int = Field(ge=1, le=65536, description="vLLM's --max-num-seqs.")
    max_num_batched_tokens: int = Field(ge=1, le=1_048_576, description="vLLM's --max-num-batched-tokens.")

    def __str__(self) -> str:
        return f"{self.max_num_seqs}/{self.max_num_batched_tokens}"


class LocalReference(ApiModel):
    """A key of an object in the same namespace."""

    name: ObjectName = Field(description="The object's name.")
    key: str | None = Field(
        default=None,
        max_length=253,
        description="The key in it, or the path on a volume; may be left out where there is one.",
    )
