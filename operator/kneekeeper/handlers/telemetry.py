"""The operator's own metrics and its log format."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from prometheus_client import Counter, Histogram, start_http_server

TICKS = Histogram("kneekeeper_tick_duration_seconds", "Time of one observe-decide-act step.", ["kind"])
FAILURES = Counter("kneekeeper_tick_failures_total", "Steps that ended in an error and are tried again.", ["kind"])


def serve(port: int) -> None:
    """Answer Prometheus on this port of every address."""
    start_http_server(port)


@contextmanager
def timed(kind: str) -> Iterator[None]:
    """Measure one step."""
    start = time.perf_counter()
    try:
        yield
    finally:
        TICKS.labels(kind).observe(time.perf_counter() - start)


def failed(kind: str) -> None:
    """Count one step that failed."""
    FAILURES.labels(kind).inc()


class JsonFormatter(logging.Formatter):
    """One JSON object a line; what names the object of a record stands beside its message."""

    FIELDS = ("kind", "namespace", "object")

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({name: getattr(record, name) for name in self.FIELDS if hasattr(record, name)})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)
