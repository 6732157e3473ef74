"""Durations as Go writes them, decimals as strings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kneekeeper.api.quantities import Duration, Quantity, counted, format_duration, format_quantity, parse_duration

DURATION: TypeAdapter[float] = TypeAdapter(Duration)
QUANTITY: TypeAdapter[float] = TypeAdapter(Quantity)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("12us", 12e-6),
        ("12µs", 12e-6),
        ("0.1ms", 1e-4),
        ("100us", 1e-4),
        ("0s", 0),
        ("0.9ns", 0),
        ("9223372036s", 9223372036),
    ],
)
def test_durations_are_read_as_go_reads_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 s", "1d", "1s2", "1e3s", "١s", "1s\n"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write it like"):
        parse_duration(text)


def test_what_go_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="292 years"):
        parse_duration("9999999999h")


@given(st.floats(min_value=1e-6, max_value=1e8))
def test_a_duration_survives_writing_to_four_digits(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-3)


@given(st.integers(0, 10**9))
def test_whole_seconds_survive_writing_exactly(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(min_value=-1e12, max_value=1e12))
def test_a_quantity_survives_writing_and_holds_no_exponent(value):
    text = format_quantity(value)
    assert "e" not in text.lower()
    assert QUANTITY.validate_python(text) == pytest.approx(value, rel=1e-3)


@given(st.text())
def test_any_text_is_a_duration_or_refused_with_the_reason(text):
    if accepts(DURATION, text):
        assert parse_duration(text) >= 0
    else:
        with pytest.raises(ValidationError, match=r"292 years|write it like"):
            DURATION.validate_python(text)


def accepts(adapter: TypeAdapter[float], value: object) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("text", ["", "NaN", "Infinity", "1e3", "1_000", ".5", "5.", " 1", "1\n", "+1"])
def test_what_is_no_plain_decimal_is_refused_with_an_example(text):
    with pytest.raises(ValidationError, match="write it like"):
        QUANTITY.validate_python(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_no_resource_can_hold_is_refused_before_it_is_written(value):
    assert not accepts(DURATION, value)
    assert not accepts(QUANTITY, value)


def test_one_thing_is_told_in_the_singular():
    assert [counted(number, "replica") for number in (0, 1, 2)] == ["0 replicas", "1 replica", "2 replicas"]


def test_a_zero_has_no_sign_whichever_was_written_first():
    assert [format_quantity(-0.0), format_quantity(0.0)] == ["0", "0"]
