"""The charts' pages tell every value, and are what `python -m e2e.chart_readme` writes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from e2e.chart_readme import CHARTS, Value, read_values, readme
from e2e.cluster.binaries import HELM, ensure_built

FOLDERS = sorted(path.parent for path in CHARTS.glob("*/Chart.yaml"))
charts = pytest.mark.parametrize("chart", FOLDERS, ids=lambda chart: chart.name)


def values_of(chart: Path) -> list[Value]:
    return list(read_values((chart / "values.yaml").read_text(encoding="utf-8")))


def test_values_are_read_with_their_comments_and_defaults():
    text = "# One\n# thing.\na: 1\n\n# Far away.\n\nb:\n  # Inner.\n  c: [x, {y: 2}]\n  d: {}\n"
    assert list(read_values(text)) == [
        Value(("a",), "1", "One thing."),
        Value(("b",), None, ""),
        Value(("b", "c"), '["x", {"y": 2}]', "Inner."),
        Value(("b", "d"), "{}", ""),
    ]


def test_a_chart_without_values_has_none():
    assert list(read_values("")) == []


@charts
def test_the_page_is_what_the_command_writes(chart):
    assert (chart / "README.md").read_text(encoding="utf-8") == readme(chart), "run make chart-readme"


@charts
def test_every_value_or_its_group_says_what_it_is(chart):
    told = {value.path for value in values_of(chart) if value.comment}
    assert [v.path for v in values_of(chart) if not any(v.path[:n] in told for n in range(1, len(v.path) + 1))] == []


@charts
def test_the_schema_knows_every_value_and_nothing_else(chart):
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) - {"global"} == {value.path[0] for value in values_of(chart)}


@charts
def test_every_value_that_a_template_reads_exists(chart):
    known = {".".join(value.path) for value in values_of(chart)}
    templates = "\n".join(
        path.read_text(encoding="utf-8") for path in (chart / "templates").rglob("*") if path.suffix != ".md"
    )
    read = set(re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", templates))
    assert read
    assert read <= known


@charts
def test_the_introduction_is_no_part_of_the_package(chart, tmp_path):
    helm = str(ensure_built(HELM) / "helm")
    subprocess.run([helm, "package", str(chart), "--destination", str(tmp_path)], check=True, capture_output=True)
    packed = subprocess.run(["tar", "-tzf", *tmp_path.glob("*.tgz")], check=True, capture_output=True, text=True).stdout
    assert f"{chart.name}/README.md" in packed
    assert "introduction.md" not in packed
