"""Where a simulated engine listens when nothing says where."""

from __future__ import annotations

from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
_EVERY_ADDRESS = "0.0.0.0"
_SET_IN_PODS = "KUBERNETES_SERVICE_HOST"


def default_address(environment: Mapping[str, str]) -> str:
    """Every address in a pod, as vLLM; elsewhere this machine alone, whose user has no use for guests."""
    return _EVERY_ADDRESS if _SET_IN_PODS in environment else LOOPBACK
