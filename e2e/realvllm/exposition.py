"""The shape of a /metrics body: what a scraper depends on, without the values.

Two bodies with the same shape can be read by the same queries: the same families, types, label names
and histogram buckets. Values, and label values that depend on the machine, are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

VLLM_PREFIX = "vllm:"
# Labels whose values are part of the interface: a query selects by them.
_ENUMERATED_LABELS = frozenset({"reason", "source", "finished_reason", "sleep_state"})


@dataclass(frozen=True)
class FamilyShape:
    """One family: its type, the label names of its samples, and what a query may select by.

    `buckets` are the upper bounds of a histogram, in the family's unit, +Inf last; empty otherwise.
    `label_values` are those of the labels that enumerate (reason, source, …), as `label=value`.
    """

    type: str
    labels: frozenset[str]
    buckets: tuple[float, ...]
    label_values: frozenset[str]


def shape_of(body: str, *, prefix: str = VLLM_PREFIX) -> Mapping[str, FamilyShape]:
    """The families whose names begin with `prefix`, by name as exposed (counters with `_total`).

    Families without a sample are left out: nothing can be read from them.
    """
    shapes: dict[str, FamilyShape] = {}
    for family in text_string_to_metric_families(body):
        if not family.name.startswith(prefix) or not family.samples:
            continue
        names: set[str] = set()
        buckets: set[float] = set()
        values: set[str] = set()
        for sample in family.samples:
            names.update(name for name in sample.labels if name != "le")
            values.update(f"{n}={v}" for n, v in sample.labels.items() if n in _ENUMERATED_LABELS)
            if "le" in sample.labels:
                buckets.add(float(sample.labels["le"]))
        # The parser takes `_total` off a counter's name.
        exposed = f"{family.name}_total" if family.type == "counter" else family.name
        shapes[exposed] = FamilyShape(
            type=family.type,
            labels=frozenset(names),
            buckets=tuple(sorted(buckets, key=lambda bound: (math.isinf(bound), bound))),
            label_values=frozenset(values),
        )
    return shapes


def differences(expected: Mapping[str, FamilyShape], actual: Mapping[str, FamilyShape]) -> tuple[str, ...]:
    """One sentence for each way in which `actual` is not as `expected`; empty when they agree."""
    found: list[str] = []
    for name in sorted(expected.keys() - actual.keys()):
        found.append(f"{name} is missing")
    for name in sorted(actual.keys() - expected.keys()):
        found.append(f"{name} is not in the expected body")
    for name in sorted(expected.keys() & actual.keys()):
        want, have = expected[name], actual[name]
        if want.type != have.type:
            found.append(f"{name} is a {have.type}, expected a {want.type}")
        if want.labels != have.labels:
            found.append(f"{name} has labels {sorted(have.labels)}, expected {sorted(want.labels)}")
        if want.buckets != have.buckets:
            found.append(f"{name} has buckets {have.buckets}, expected {want.buckets}")
        if want.label_values != have.label_values:
            found.append(f"{name} has values {sorted(have.label_values)}, expected {sorted(want.label_values)}")
    return tuple(found)
