"""`python -m e2e.chart_readme` writes each chart's README.md from its Chart.yaml and the comments of its values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

CHARTS = Path(__file__).parents[1] / "charts"
INTRODUCTION = "introduction.md"
"""Of the chart's folder: what stands between its description and its values."""


@dataclass(frozen=True)
class Value:
    """One value of a chart, or a group of them, which then has no default of its own."""

    path: tuple[str, ...]
    default: str | None
    comment: str


def read_values(text: str) -> Iterator[Value]:
    """The values in the order of the file, each with the lines of comment that stand directly above it."""
    root = yaml.compose(text)
    if isinstance(root, yaml.MappingNode):
        yield from _values_of(root, (), text.splitlines())


def _values_of(mapping: yaml.MappingNode, above: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    for key, node in mapping.value:
        path, comment = (*above, str(key.value)), _comment_above(lines, key.start_mark.line)
        if isinstance(node, yaml.MappingNode) and node.value:
            yield Value(path, None, comment)
            yield from _values_of(node, path, lines)
        else:
            yield Value(path, json.dumps(yaml.safe_load(yaml.serialize(node)), ensure_ascii=False), comment)


def _comment_above(lines: list[str], at: int) -> str:
    first = at
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(line.strip().lstrip("#").strip() for line in lines[first:at])


def readme(chart: Path) -> str:
    """The whole page."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    introduction = (chart / INTRODUCTION).read_text(encoding="utf-8").strip()
    rows = [_row(value) for value in read_values((chart / "values.yaml").read_text(encoding="utf-8"))]
    return "\n".join(
        [
            f"# {about['name']}",
            "",
            about["description"],
            "",
            f"Kubernetes `{about['kubeVersion']}`." if "kubeVersion" in about else "",
            "",
            introduction,
            "",
            "## Values",
            "",
            "Checked against `values.schema.json`: an unknown or impossible value is refused.",
            "",
            "| value | default | what it is |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _row(value: Value) -> str:
    name = ".".join(part.replace(".", "\\.") for part in value.path)
    default = "" if value.default is None else f"`{value.default}`"
    return f"| `{name}` | {default} | {value.comment.replace('|', chr(92) + '|')} |"


def main() -> None:
    """Write both."""
    for chart in sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")):
        (chart / "README.md").write_text(readme(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
