"""A rule refuses in Python with the message that the API server would give, and says where."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from kneekeeper.api.model import ApiModel
from kneekeeper.api.quantities import Duration
from kneekeeper.api.rules import POSITIVE, Unique, between, explain, rule, rules_of


class Range(ApiModel):
    min: int = 0
    max: int = 9
    wait: Annotated[Duration, between("1ms", "1h")] = 1.0
    pause: Annotated[Duration, POSITIVE] = 1.0
    names: Annotated[list[str], Unique()] = Field(default=[])

    @rule("self.min <= self.max", "min must not be above max")
    def _is_ordered(self) -> bool:
        return self.min <= self.max

    @rule("self.min != 7", "seven is unlucky")
    def _is_lucky(self) -> bool:
        return self.min != 7


class NamedRange(Range):
    name: str = "a"

    @rule("size(self.name) > 0", "needs a name")
    def _has_a_name(self) -> bool:
        return bool(self.name)


class Shelf(ApiModel):
    ranges: Annotated[list[NamedRange], Unique(("name",))] = Field(default=[])


def complaint(model: type[ApiModel], **values: object) -> str:
    with pytest.raises(ValidationError) as error:
        model.model_validate(values)
    return explain(error.value)


def test_every_broken_rule_is_told_at_once():
    assert complaint(Range, min=7, max=3) == "resource: min must not be above max; seven is unlucky"


def test_a_mistake_is_told_with_its_path_in_the_resource():
    assert complaint(Shelf, ranges=[{}, {"min": 3, "max": 2}]) == "ranges.1: min must not be above max"


def test_rules_are_inherited_in_the_order_they_were_written():
    assert [each.message for each, _ in rules_of(NamedRange)] == [
        "min must not be above max",
        "seven is unlucky",
        "needs a name",
    ]


def test_rules_hold_for_changed_copies_too():
    with pytest.raises(ValidationError, match="min must not be above max"):
        Range().with_changes(min=10)


@given(st.floats(min_value=0, max_value=1e6))
def test_a_duration_is_accepted_exactly_within_its_range(seconds):
    if 1e-3 <= seconds <= 3600:
        assert Range(wait=seconds).wait == seconds
    else:
        assert complaint(Range, wait=seconds) == "wait: must be between 1ms and 1h"


def test_a_duration_of_nothing_is_refused():
    assert complaint(Range, pause="0s") == "pause: must be more than 0s"


@given(st.lists(st.sampled_from("abc")))
def test_a_list_is_accepted_exactly_when_nothing_is_in_it_twice(names):
    if len(set(names)) == len(names):
        assert Range(names=names).names == names
    else:
        assert "names: Duplicate value" in complaint(Range, names=names)


def test_objects_are_told_apart_by_their_keys():
    assert complaint(Shelf, ranges=[{"name": "a"}, {"name": "a", "min": 1}]) == "ranges: Duplicate value: a"
    Shelf.model_validate({"ranges": [{"name": "a"}, {"name": "b"}]})
