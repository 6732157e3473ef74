"""Every number that any command takes: what it is not, it is told with an example, before anything is done."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from kneekeeper.cli.argument_types import batched_tokens, between, duration, positive, sequences, whole
from kneekeeper.cli.main import parser_of
from kneekeeper.cli.parser import PROGRAM

NONE_AT_ALL = ("abc", "nan", "inf", "-inf", "-1", "1e400", "")


def numbers() -> Iterator[tuple[tuple[str, ...], str]]:
    """Command and option of all that has a type but files."""
    waiting: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = [((), parser_of(PROGRAM))]
    while waiting:
        words, parser = waiting.pop()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += [((*words, name), child) for name, child in action.choices.items()]
            elif action.type not in (None, Path):
                yield words, action.option_strings[-1]


ALL = list(numbers())


def test_the_commands_that_measure_and_simulate_are_among_them() -> None:
    assert {(words[0], option) for words, option in ALL} >= {
        ("probe", "--rate"),
        ("probe", "--users"),
        ("probe", "--requests"),
        ("probe", "--duration"),
        ("probe", "--seed"),
        ("tune", "--ttft"),
        ("tune", "--tpot"),
        ("simulate", "--imbalance"),
        ("patch", "--max-num-seqs"),
        ("explain", "--max-num-seqs"),
    }


@pytest.mark.parametrize(("words", "option"), ALL, ids=lambda each: each if isinstance(each, str) else each[0])
def test_what_is_no_number_is_told_with_an_example(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(PROGRAM)
    for text in NONE_AT_ALL:
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([*words, f"{option}={text}"])
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert f"{option}: {text!r} is no" in told
        assert "write it like" in told


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (whole("8"), "1000000", 1_000_000),
        (whole("7", 2**63 - 1, least=0), "0", 0),
        (positive("12"), "0.5", 0.5),
        (positive("12", most=10_000), "1e4", 10_000.0),
        (between(0, 1000, "15"), "0", 0.0),
        (sequences, "65536", 65_536),
        (batched_tokens, "1048576", 1_048_576),
        (duration, "1m30s", 90.0),
    ],
)
def test_what_is_one_is_taken(kind, text: str, value: float) -> None:
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (whole("800"), "1.5"),
        (whole("800"), "0"),
        (whole("800"), "1000001"),
        (positive("12", most=10_000), "0"),
        (positive("12", most=10_000), "10000.1"),
        (between(0, 1000, "15"), "1000.5"),
        (duration, "0s"),
        (duration, "5"),
    ],
)
def test_what_lies_outside_is_told_with_an_example(kind, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is no.*write it like"):
        kind(text)
