"""docs/failure_modes.md names a test in each line; the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_COLUMNS = 5
_NAMED = re.compile(r"`((?:tests|e2e)/[\w/]+\.py)(?:::(\w+))?`")

LINES = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/failure_modes.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| what goes wrong", "| ---"))
]


def test_the_page_has_lines():
    assert len(LINES) > 50


@pytest.mark.parametrize("cells", LINES, ids=[cells[0][:60] for cells in LINES])
def test_each_line_says_all_and_names_tests_that_exist(cells: list[str]):
    assert len(cells) == _COLUMNS
    assert all(cells)
    named = _NAMED.findall(cells[-1])
    assert named, f"{cells[-1]} names no test"
    for file, function in named:
        text = (ROOT / file).read_text()
        assert not function or re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), f"{file}::{function}"
        assert re.search(r"^(async )?def test_", text, re.MULTILINE), f"{file} has no test"


def test_each_threat_names_tests_that_exist():
    rows = re.findall(r"^\| .+ \| (`tests/.+`) \|$", (ROOT / "docs/threat-model.md").read_text(), re.MULTILINE)
    assert len(rows) > 10
    for file in {file for row in rows for file, _ in _NAMED.findall(row)}:
        assert (ROOT / file).is_file(), file
