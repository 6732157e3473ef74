"""The histogram buckets of vLLM 0.32, and their replacement by `--custom-histogram-buckets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Buckets = Sequence[float]

_TIME_TO_FIRST_TOKEN_S: Buckets = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_INTER_TOKEN_LATENCY_S: Buckets = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_LATENCY_S: Buckets = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_STATIC: dict[str, Buckets] = {
    "time_to_first_token": _TIME_TO_FIRST_TOKEN_S,
    "inter_token_latency": _INTER_TOKEN_LATENCY_S,
    "request_latency": _REQUEST_LATENCY_S,
    "iteration_tokens": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "request_params_n": (1, 2, 5, 10, 20),
    "request_num_preemptions": (1, 2, 3, 4, 5, 10, 20),
}
FAMILIES = frozenset((*_STATIC, "request_tokens", "kv_cache_residency"))
"""The keys that `--custom-histogram-buckets` knows."""


def buckets_of(family: str, max_model_len: int, custom: Mapping[str, Buckets]) -> Buckets:
    """The upper bounds of a family's buckets. Token counts follow 1-2-5 up to the model's length."""
    if family in custom:
        return custom[family]
    if family == "request_tokens":
        series = (mantissa * 10**exponent for exponent in range(10) for mantissa in (1, 2, 5))
        return [bound for bound in series if bound <= max_model_len]
    return _STATIC[family]
