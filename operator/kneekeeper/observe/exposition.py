"""The Prometheus text format, read line by line: of all that an idle operator does, this is most.

Several times as fast as prometheus_client's parser, which looks at every character; tests hold both against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TYPE = re.compile(r"#[ \t]*TYPE[ \t]+(\S+)[ \t]+counter")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r'\\([\\n"])')


class NotAnExposition(ValueError):
    """A text that is not in the Prometheus format."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at the time of the scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


def series_of(exposition: str, name: re.Pattern[str]) -> Iterator[Sample]:
    """The series whose names begin with `name`, without that; times of theirs are left out.

    What is declared as a counter ends with `_total`, also where its line does not, as with prometheus_client.
    Raises NotAnExposition at the first line that is none, of whatever name.
    """
    counters: set[str] = set()
    for raw in exposition.split("\n"):
        line = raw.strip()
        if line.startswith("#"):
            declared = _TYPE.match(line)
            if declared is not None and not declared[1].endswith("_total"):
                counters.add(declared[1])
            continue
        if not line:
            continue
        before, closed, after = line.rpartition("}")
        own, _, labels = before.partition("{") if closed else (line.split(maxsplit=1)[0], "", "")
        numbers = after.split() if closed else line.split()[1:]
        own = own.rstrip()
        if _NAME.fullmatch(own) is None or len(numbers) not in (1, 2):
            raise NotAnExposition(f"not in the Prometheus text format: {line[:80]!r}")
        prefix = name.match(own)
        if prefix is not None:
            ending = "_total" if own in counters else ""
            yield Sample(own[prefix.end() :] + ending, _labels(labels), _number(numbers[0]))


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None or found[1] in labels:
            raise NotAnExposition(f"not the labels of a series: {text[:80]!r}")
        value = found[2]
        labels[found[1]] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        position = found.end()
    return labels


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _number(text: str) -> float:
    try:
        return float(text.replace("_", "no digit"))  # Python would let it group digits
    except ValueError:
        raise NotAnExposition(f"not the value of a series: {text[:80]!r}") from None
