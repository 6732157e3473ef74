"""The external metrics API for a real HorizontalPodAutoscaler, answered by this process.

It stands where a cluster has the Prometheus adapter: an APIService sends the API group here, and each metric is a
function of this process. The API server reaches it at a loopback address through a Service of type ExternalName.
"""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from e2e.cluster.commands import run

Object = dict[str, Any]

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
NAME, NAMESPACE = "external-metrics", "kube-system"
_ADDRESS = "127.0.0.1"
_PATH = f"/apis/{GROUP}/{VERSION}"


@contextmanager
def served(metrics: Mapping[str, Callable[[], float | None]]) -> Iterator[list[Object]]:
    """Answers while the block runs; the objects to apply. A metric that is None has no answer."""
    with tempfile.TemporaryDirectory() as folder:
        server = ThreadingHTTPServer((_ADDRESS, 0), _handler(metrics))
        server.socket = _context(Path(folder)).wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield _objects(int(server.server_address[1]))
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _objects(port: int) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": _ADDRESS},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
            },
        },
    ]


def _context(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key", folder / "certificate"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=IP:{_ADDRESS}", "-days", "1"]
    run(["openssl", "req", "-x509", *new, "-keyout", str(key), "-out", str(certificate), *subject])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _handler(metrics: Mapping[str, Callable[[], float | None]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.split("?")[0].rstrip("/")
            name = path.rsplit("/", 1)[-1]
            if path == _PATH:
                self._answer(_resources(metrics))
            elif path.startswith(f"{_PATH}/namespaces/") and name in metrics:
                self._answer(_values(name, metrics[name]()))
            else:
                self.send_error(404)

        def _answer(self, body: Object) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    return Handler


def _resources(metrics: Mapping[str, object]) -> Object:
    each = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [{"name": name, **each} for name in metrics],
    }


def _values(name: str, value: float | None) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": f"{round(1000 * (value or 0))}m"}
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": [] if value is None else [item],
    }
