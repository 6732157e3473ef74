"""`python -m kneekeeper.handlers`: the operator."""

from __future__ import annotations

import logging
import os
import sys

import kopf
from pydantic import ValidationError

from kneekeeper.compiled import unpack
from kneekeeper.handlers import reconcile  # noqa: F401 - registers the handlers
from kneekeeper.handlers.settings import Settings
from kneekeeper.handlers.telemetry import JsonFormatter


def main() -> None:
    """Run until a signal; a wrong setting ends it with exit code 2."""
    try:
        settings = Settings.from_environment()
    except ValidationError as error:
        sys.exit(f"kneekeeper: a KNEEKEEPER_ variable is wrong: {error}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    for noisy in ("aiohttp.access", "httpx", "httpcore", "kopf"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    unpack(os.environ)
    kopf.run(
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
    )


if __name__ == "__main__":
    main()
