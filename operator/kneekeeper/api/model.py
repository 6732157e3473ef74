"""The base of every resource model, and what all resources share."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

GROUP = "kneekeeper.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_ACRONYMS = {"Ttft": "TTFT", "Tpot": "TPOT", "E2e": "E2E", "Gpu": "GPU", "Kv": "KV", "Ip": "IP", "Ca": "CA"}


def camel_case(name: str) -> str:
    """The field's name in a resource: `p99_ttft` becomes `p99TTFT`, `target_ref` `targetRef`."""
    words = name.split("_")
    return to_camel("_".join(words[:1])) + "".join(
        _ACRONYMS.get(word.capitalize(), word.capitalize()) for word in words[1:]
    )


class ApiModel(BaseModel):
    """Frozen; unknown fields are errors, since a pruned field would be a silent one."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=camel_case, populate_by_name=True, validate_default=True
    )

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
    datetime,
    PlainSerializer(_rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An aware datetime in Python, RFC 3339 with whole seconds in the resource."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """A Kubernetes condition; `reason` is part of the API, `message` tells people the next step."""

    type: str = Field(max_length=64)
    status: ConditionStatus
    reason: str = Field(max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")
    message: str = Field(default="", max_length=2048)
    observed_generation: int = 0
    last_transition_time: Timestamp


class Setting(ApiModel):
    """The two limits that kneekeeper tunes."""

    max_num_seqs: int = Field(ge=1, le=65536, description="vLLM's --max-num-seqs")
    max_num_batched_tokens: int = Field(ge=1, le=1_048_576, description="vLLM's --max-num-batched-tokens")

    def __str__(self) -> str:
        return f"{self.max_num_seqs}/{self.max_num_batched_tokens}"


class LocalReference(ApiModel):
    """A key of an object in the same namespace."""

    name: str = Field(min_length=1, max_length=253)
    key: str | None = Field(default=None, max_length=253)
