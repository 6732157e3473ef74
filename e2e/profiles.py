"""Profiles as users write them, small enough for tests: short ladders, short verification."""

from __future__ import annotations

from typing import Any

from kneekeeper.api.quantities import format_duration

Object = dict[str, Any]

# Long prompts, short answers: prefills disturb decodes, which a large token budget makes worse.
PROMPT_TOKENS = (400, 1200)
OUTPUT_TOKENS = (8, 16)


def profile(namespace: str, *, ttft_s: float, tpot_s: float, name: str = "chat", **spec: Any) -> Object:
    """A ServingProfile in Apply mode for the Deployment of the same name; `spec` replaces whole fields."""
    return {
        "apiVersion": "kneekeeper.io/v1alpha1",
        "kind": "ServingProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "slo": {"p99TTFT": format_duration(ttft_s), "p99TPOT": format_duration(tpot_s)},
            "workload": {
                "promptTokens": {"distribution": "Uniform", "min": PROMPT_TOKENS[0], "max": PROMPT_TOKENS[1]},
                "outputTokens": {"distribution": "Uniform", "min": OUTPUT_TOKENS[0], "max": OUTPUT_TOKENS[1]},
            },
            "parameters": {
                "maxNumSeqs": {"min": 2, "max": 64},
                "maxNumBatchedTokens": {"min": 128, "max": 8192},
            },
            "probe": {
                "allow": ["Clone"],
                # Test machines are shared with everything else that the tests run.
                "ladder": {"maxConcurrency": 16, "recovery": "500ms", "controlTolerancePercent": 40},
            },
            "updatePolicy": {"mode": "Apply", "verifyFor": "10s"},
            **spec,
        },
    }
