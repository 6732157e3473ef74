"""Data for programs, and colours only where they are wanted."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import yaml
from rich.text import Text

from kneekeeper.cli.output import Output, ink, print_data, print_lines
from kneekeeper.local.chart import Ink

COLOURED = Text("bad", "red")


@dataclass(frozen=True)
class Row:
    name: str
    rate: float | None


def test_data_has_the_names_and_values_of_its_fields(capsys: pytest.CaptureFixture[str]):
    rows = [Row("ä", 1.5), Row("b", None)]
    print_data(rows, Output.JSON)
    assert json.loads(capsys.readouterr().out) == [{"name": "ä", "rate": 1.5}, {"name": "b", "rate": None}]
    print_data(rows, Output.YAML)
    told = capsys.readouterr().out
    assert "ä" in told
    assert yaml.safe_load(told) == [{"name": "ä", "rate": 1.5}, {"name": "b", "rate": None}]


def test_a_file_or_a_pipe_gets_no_colours(capsys: pytest.CaptureFixture[str]):
    print_lines([COLOURED])
    assert capsys.readouterr().out == "bad\n"
    assert ink() is Ink.PLAIN


def test_a_terminal_gets_colours_unless_no_color_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_lines([COLOURED])
    assert capsys.readouterr().out == "\x1b[31mbad\x1b[0m\n"
    assert ink() is Ink.COLOUR
    monkeypatch.setenv("NO_COLOR", "1")
    print_lines([COLOURED])
    assert "\x1b[31m" not in capsys.readouterr().out
    assert ink() is Ink.PLAIN


def test_lines_are_never_cut_or_wrapped(capsys: pytest.CaptureFixture[str]):
    print_lines([Text("long " * 100)])
    assert len(capsys.readouterr().out.splitlines()) == 1
