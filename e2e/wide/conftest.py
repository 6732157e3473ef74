"""The same lab on two nodes, so that one of them can be drained."""

from __future__ import annotations

import pytest

from e2e.cluster import ClusterSpec
from e2e.lab import GPU_PRODUCT, Lab, open_lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """Two nodes with two GPUs each."""
    return open_lab(ClusterSpec(nodes=2, gpus_per_node=2, gpu_product=GPU_PRODUCT))
