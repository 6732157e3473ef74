"""How vLLM's metrics are named by those who hand them on."""

from __future__ import annotations

NAME_PREFIX = r"(ray_)?(kserve_)?vllm[:_]"
"""Ray writes `vllm_` and puts its own prefix in front; KServe's monitoring relabels to `kserve_vllm`."""
