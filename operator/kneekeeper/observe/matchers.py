"""Label matchers as text of PromQL. Values come from people: nothing in them ends its string."""

from __future__ import annotations

from collections.abc import Mapping

from kneekeeper.domain.prometheus_labels import is_free_label

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_NOTHING = '__name__=""'
"""Every series has a name."""


def quoted(text: str) -> str:
    """What stands between double quotes: escaped as in Go, where nothing else ends a string."""
    return text.translate(_ESCAPES)


def matchers_of(match_labels: Mapping[str, str]) -> str:
    """Each with a comma in front, to stand behind others; with a name that may not be matched, nothing is selected."""
    each = (f'{name}="{quoted(value)}"' if is_free_label(name) else _NOTHING for name, value in match_labels.items())
    return "".join(f",{matcher}" for matcher in each)
