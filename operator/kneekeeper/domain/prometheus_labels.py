"""Labels by which a user narrows every query to a Prometheus server."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_QUERIES = frozenset({"namespace", "pod", "exported_namespace", "exported_pod", "engine", "le", "model_name"})
"""Queries select or sum by these: one value of them would take away what is asked for."""


def is_free_label(name: str) -> bool:
    """Whether it is a label as Prometheus has them, and none that queries select or sum by."""
    return _NAME.fullmatch(name) is not None and not name.startswith("__") and name not in _OF_THE_QUERIES


def match_labels_problem(match_labels: Mapping[str, str]) -> str | None:
    """Why queries cannot be narrowed so; None where they can."""
    name = next((name for name in match_labels if not is_free_label(name)), None)
    if name is None:
        return None
    return (
        f"spec.metrics.matchLabels has {name[:63]!r}, which is no label's name or one that queries use themselves. "
        "Name labels of your series such as job or cluster."
    )
