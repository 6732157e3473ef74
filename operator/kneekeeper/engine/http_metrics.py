"""The `http_` metrics that vLLM's server has from prometheus-fastapi-instrumentator."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

UNCOUNTED_PATHS = frozenset(("/metrics", "/health", "/load", "/ping", "/version"))
_HIGH_RESOLUTION_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
)  # fmt: skip
_LOW_RESOLUTION_S = (0.1, 0.5, 1.0)


class HttpMetrics:
    """Counts, sizes and durations of requests by path. Durations cover the whole of a stream."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "http_requests", "Requests by path, method and status.", ("handler", "method", "status"), registry=registry
        )
        self._request_size = Summary(
            "http_request_size_bytes", "Content length of requests.", ("handler",), registry=registry
        )
        self._response_size = Summary(
            "http_response_size_bytes", "Content length of answers.", ("handler",), registry=registry
        )
        self._duration = Histogram(
            "http_request_duration_highr_seconds",
            "Duration of requests.",
            buckets=_HIGH_RESOLUTION_S,
            registry=registry,
        )
        self._duration_by_path = Histogram(
            "http_request_duration_seconds",
            "Duration of requests by path.",
            ("handler", "method"),
            buckets=_LOW_RESOLUTION_S,
            registry=registry,
        )

    def record(
        self, handler: str, method: str, status: int, request_bytes: int, response_bytes: int, duration_s: float
    ) -> None:
        """One answered request. A stream has no content length: its response counts 0 bytes."""
        self._requests.labels(handler, method, f"{status // 100}xx").inc()
        self._request_size.labels(handler).observe(request_bytes)
        self._response_size.labels(handler).observe(response_bytes)
        self._duration.observe(duration_s)
        self._duration_by_path.labels(handler, method).observe(duration_s)
