"""The definitions of earlier versions as they were when those were current, for tests of upgrades.

`make keep-crds NAME=0.2.0` keeps the present ones, with each release.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from kneekeeper.api.crds import KINDS, definition
from kneekeeper.kube.resources import Resource

FOLDER = Path(__file__).parents[1] / "cases/crds"


def kept_versions() -> list[str]:
    """By name, which tells what came with them."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


def kept(name: str) -> list[Resource]:
    """The definitions of this version."""
    found: list[Resource] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return found


def present() -> list[Resource]:
    """The definitions of the models as they are now."""
    return [definition(kind) for kind in KINDS]


def keep(name: str, definitions: list[Resource]) -> None:
    """Without what is for people only."""
    text = json.dumps([_without_descriptions(each) for each in definitions], separators=(",", ":"))
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _without_descriptions(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_descriptions(each) for each in node]
    if not isinstance(node, dict):
        return node
    told = {key: value for key, value in node.items() if key != "description" or not isinstance(value, str)}
    return {key: _without_descriptions(value) for key, value in told.items()}


if __name__ == "__main__":
    keep(sys.argv[1], present())
