"""Which resources of a pod are accelerators, and which label of a node names their product."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kneekeeper.kube.quantity import whole_number

PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
)
"""Set by GPU feature discovery, the vendors' node labellers, or the provider; the first that is set counts."""

_ACCELERATOR = re.compile(
    r"nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/(gpu|.*_.*)|gpu\.intel\.com/(i915|xe)"
    r"|habana\.ai/gaudi|google\.com/tpu|aws\.amazon\.com/neuron(core|device)?"
)


def accelerators_of(resources: Mapping[str, Any] | None) -> Counter[str]:
    """Accelerators of one container by resource name; extended resources are equal in requests and limits."""
    declared = {**((resources or {}).get("requests") or {}), **((resources or {}).get("limits") or {})}
    return Counter({name: whole_number(value) for name, value in declared.items() if _ACCELERATOR.fullmatch(name)})


def accelerators_of_pod(spec: Mapping[str, Any]) -> Counter[str]:
    """What the scheduler reserves for a pod, by resource name.

    Containers and native sidecars run together; an init container runs with the sidecars before it.
    See "Resource sharing within containers" in the Kubernetes documentation of init containers.
    """
    sidecars: Counter[str] = Counter()
    largest_init: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        own = accelerators_of(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            sidecars += own
            largest_init |= sidecars
        else:
            largest_init |= sidecars + own
    together = sum((accelerators_of(c.get("resources")) for c in spec.get("containers") or []), sidecars)
    return together | largest_init


def product_of_node(node: Mapping[str, Any]) -> str:
    """The GPU product that the node's labels name, empty where none does."""
    labels = node.get("metadata", {}).get("labels") or {}
    return next((labels[key] for key in PRODUCT_LABELS if labels.get(key)), "")
