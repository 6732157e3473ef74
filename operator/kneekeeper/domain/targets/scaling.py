"""Autoscalers whose target can no longer be reached when max_num_seqs bounds the metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.domain.manifests import ManifestObject, value_at
from kneekeeper.domain.targets.model import Objects

_BOUNDED_METRIC = "num_requests_running"  # never above max_num_seqs


def scaling_conflict(target: ManifestObject, objects: Objects, setting: Setting) -> str | None:
    """Why the workload would never scale out again with `setting`; None where nothing at hand says so."""
    for item in objects.items:
        if item.kind not in ("HorizontalPodAutoscaler", "ScaledObject") or item.namespace != target.namespace:
            continue
        reference = value_at(item.value, ("spec", "scaleTargetRef"))
        if not isinstance(reference, Mapping):
            continue
        if (reference.get("kind", "Deployment"), reference.get("name")) != (target.kind, target.name):
            continue
        for metric, wanted in _targets(item):
            if _BOUNDED_METRIC in metric and wanted > setting.max_num_seqs:
                return (
                    f"{item.kind} {item.name} waits for {wanted:g} running requests per pod, which max_num_seqs "
                    f"{setting.max_num_seqs} never reaches, so it would never scale out again. Lower its target below "
                    "the new max_num_seqs together with this change."
                )
    return None


def _targets(scaler: ManifestObject) -> Iterator[tuple[str, float]]:
    """The metrics of an HPA or a ScaledObject with their targets; what has another shape is no metric."""
    for metric in _mappings(value_at(scaler.value, ("spec", "metrics"))):
        for source in metric.values():
            value = _number(value_at(source, ("target", "averageValue")))
            if value is not None:
                yield str(value_at(source, ("metric", "name"))), value
    for trigger in _mappings(value_at(scaler.value, ("spec", "triggers"))):
        value = _number(value_at(trigger, ("metadata", "threshold")))
        if value is not None:
            yield str(value_at(trigger, ("metadata", "query"))), value


def _mappings(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _number(value: Any) -> float | None:
    """A quantity without suffix, or in thousandths."""
    text = str(value)
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        return None
