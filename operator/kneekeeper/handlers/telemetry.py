"""The operator's own metrics and its log format."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server

from kneekeeper import __version__
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.fleet_metrics import FleetMetrics
from kneekeeper.kube.resources import SERVING_PROFILES

FLEET = FleetMetrics(time.time)
BUILD = Gauge("kneekeeper_build_info", "1; its label tells the operator's version.", ["version"])
REQUESTS = Counter(
    "kneekeeper_kube_requests_total", "Answers of the API server; code is error where none came.", ["method", "code"]
)
TICKS = Histogram("kneekeeper_tick_duration_seconds", "Time of one observe-decide-act step.", ["kind"])
FAILURES = Counter("kneekeeper_tick_failures_total", "Steps that ended in an error and are tried again.", ["kind"])


def serve(port: int) -> None:
    """Answer Prometheus on this port of every address."""
    REGISTRY.register(FLEET)
    BUILD.labels(__version__).set(1)
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


def fields(key: Key) -> dict[str, str]:
    """What a log record about this object carries."""
    if key.kind == SERVING_PROFILES.name:
        return {"namespace": key.namespace, "profile": key.name}
    profile = FLEET.profile_of(key)
    return {"namespace": key.namespace, "run": key.name} | ({"profile": profile} if profile else {})


def answered(method: str, code: int | None) -> None:
    """Count one call of the API server."""
    REQUESTS.labels(method, "error" if code is None else str(code)).inc()


class JsonFormatter(logging.Formatter):
    """One JSON object a line; the profile and the run that a record is about stand beside its message."""

    FIELDS = ("namespace", "profile", "run")

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
