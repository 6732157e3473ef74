"""Values as YAML text in the style of their neighbours."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import yaml

from kneekeeper.domain.manifests.source import YAML_ERRORS


class Style(StrEnum):
    """How a string is written; a block is never written anew."""

    PLAIN = ""
    SINGLE = "'"
    DOUBLE = '"'


def style_of(node: yaml.Node | None) -> Style:
    """The style to use beside `node`."""
    if isinstance(node, yaml.ScalarNode) and node.style in ("'", '"'):
        return Style(node.style)
    return Style.PLAIN


def render(value: Any, style: Style) -> str:
    """`value` on one line, fit for any place; strings in `style` where that keeps them strings."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{render(key, style)}: {render(item, style)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render(item, style) for item in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if style is Style.PLAIN and _is_plain(value):
        return value
    if style is Style.SINGLE and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str) -> bool:
    if not value.isprintable() or value != value.strip():
        return False
    try:
        return bool(yaml.safe_load(f"[{value}]") == [value] and yaml.safe_load(f"- {value}") == [value])
    except YAML_ERRORS:
        return False
