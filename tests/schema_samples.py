"""Objects in which every field of a structural schema is set, so that a dropped field cannot hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kneekeeper.api.quantities import DURATION_PATTERN, QUANTITY_PATTERN

_BY_PATTERN = {DURATION_PATTERN: "1.5s", QUANTITY_PATTERN: "37.5", r"^[A-Z][A-Za-z0-9]*$": "Measured"}


def sample(schema: Mapping[str, Any], given: Mapping[str, Any] | None = None, name: str = "") -> Any:
    """A value with every property set; a property named in `given` gets that value wherever it stands."""
    if given and name in given:
        return given[name]
    match schema["type"]:
        case "object" if "properties" in schema:
            return {key: sample(child, given, key) for key, child in schema["properties"].items()}
        case "object":
            return {"key": sample(schema["additionalProperties"], given)}
        case "array":
            return [sample(schema["items"], given)]
        case "integer":
            return max(schema["minimum"], 3)
        case "boolean":
            return True
        case _ if "enum" in schema:
            return schema["enum"][-1]
        case _ if schema.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        case _ if "pattern" in schema:
            return _BY_PATTERN[schema["pattern"]]
        case _:
            return name[: schema["maxLength"]] or "word"
