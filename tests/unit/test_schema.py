"""What a model must say before it can be a structural schema, and what the schema says of it."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from kneekeeper.api.model import ApiModel, Timestamp
from kneekeeper.api.quantities import Duration
from kneekeeper.api.rules import POSITIVE, VALIDATIONS, Unique, rule
from kneekeeper.api.schema import SchemaError, spec_schema, status_schema


class Inner(ApiModel):
    """An inner part."""

    size: int = Field(default=2, ge=1, le=9, description="How many.")
    word: str | None = Field(default=None, max_length=5, description="Maybe a word.")


class Outer(ApiModel):
    """An outer part.

    This paragraph is for programmers.
    """

    immutable = "make another"

    inner: Inner = Field(default=Inner(), description="With its defaults.")
    bare: Inner | None = None
    wait: Annotated[Duration, POSITIVE] = Field(default=90.0, description="How long.")
    at: Timestamp | None = Field(default=None, description="When.")
    words: Annotated[list[Annotated[str, Field(max_length=5)]], Unique()] = Field(default=[], max_length=3)
    parts: Annotated[list[Inner], Unique(("word",))] = Field(default=[], max_length=3)
    labels: dict[str, Annotated[str, Field(max_length=5)]] = Field(default={}, max_length=3)

    @rule("size(self.words) < 3", "too many words")
    def _has_few_words(self) -> bool:
        return len(self.words) < 3


SCHEMA = spec_schema(Outer)
FIELDS = SCHEMA["properties"]


def test_the_first_paragraph_describes_a_model_and_a_field_describes_itself():
    assert SCHEMA["description"] == "An outer part."
    assert FIELDS["inner"]["description"] == "With its defaults."
    assert FIELDS["bare"]["description"] == "An inner part."


def test_defaults_stand_as_they_do_in_the_resource():
    assert FIELDS["wait"]["default"] == "1m30s"
    assert FIELDS["inner"]["default"] == {"size": 2}
    assert FIELDS["inner"]["properties"]["size"]["default"] == 2


def test_a_default_that_tells_nothing_is_left_out():
    assert not any("default" in FIELDS[name] for name in ("bare", "at", "words", "parts", "labels"))


def test_an_optional_field_may_be_absent_but_not_null():
    assert FIELDS["at"] == {"type": "string", "format": "date-time", "description": "When."}
    assert "required" not in SCHEMA


def test_lists_say_how_they_merge():
    assert FIELDS["words"]["x-kubernetes-list-type"] == "set"
    assert FIELDS["parts"]["x-kubernetes-list-type"] == "map"
    assert FIELDS["parts"]["x-kubernetes-list-map-keys"] == ["word"]


def test_a_map_keeps_its_bounds():
    assert FIELDS["labels"]["maxProperties"] == 3
    assert FIELDS["labels"]["additionalProperties"] == {"type": "string", "maxLength": 5}


def test_rules_stand_where_they_were_declared():
    assert SCHEMA[VALIDATIONS] == [
        {"rule": "self == oldSelf", "message": "make another"},
        {"rule": "size(self.words) < 3", "message": "too many words"},
    ]
    assert FIELDS["wait"][VALIDATIONS][0]["rule"] == "duration(self) > duration('0s')"


def test_a_status_has_no_defaults_and_no_rules():
    text = str(status_schema(Outer))
    assert "default" not in text.replace("With its defaults.", "")
    assert VALIDATIONS not in text


class LongWord(ApiModel):
    word: str


class ManyWords(ApiModel):
    words: list[Annotated[str, Field(max_length=5)]]


class ManyLabels(ApiModel):
    labels: dict[str, Annotated[str, Field(max_length=5)]]


class AnyNumber(ApiModel):
    number: int


class Fraction(ApiModel):
    fraction: float


class Either(ApiModel):
    either: Annotated[int, Field(ge=0, le=1)] | Annotated[str, Field(max_length=5)]


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (LongWord, "LongWord.word: needs maxLength"),
        (ManyWords, "ManyWords.words: needs maxItems"),
        (ManyLabels, "ManyLabels.labels: needs maxProperties"),
        (AnyNumber, "AnyNumber.number: needs minimum"),
        (Fraction, "Fraction.fraction: number has no place"),
        (Either, "Either.either: a union has no structural schema"),
    ],
)
def test_a_model_without_a_structural_schema_is_told_what_it_lacks(model, complaint):
    with pytest.raises(SchemaError, match=complaint):
        spec_schema(model)
