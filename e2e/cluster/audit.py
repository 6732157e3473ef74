"""Reading the API server's audit log: who called what, for tests that count calls."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ApiCall:
    """One call to the API server. A watch appears twice: when it starts and when it ends."""

    received_at: datetime
    stage: str
    """`ResponseStarted` for the start of a watch or another long call, `ResponseComplete` for an end."""
    verb: str
    user: str
    """Empty where the server did not believe who called: the token of a pod that was just deleted, for example."""
    user_agent: str
    uri: str
    resource: str
    """Plural with the subresource, such as `pods/log`; empty for a path that is no resource."""
    namespace: str
    name: str
    status_code: int


def parse_call(line: str) -> ApiCall:
    """Reads one line of the log."""
    event: dict[str, Any] = json.loads(line)
    target: dict[str, str] = event.get("objectRef") or {}
    resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
    return ApiCall(
        received_at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        stage=event["stage"],
        verb=event["verb"],
        user=event["user"].get("username", ""),
        user_agent=event.get("userAgent", ""),
        uri=event["requestURI"],
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status_code=(event.get("responseStatus") or {}).get("code", 0),
    )


def read_calls(log: Path) -> Iterator[ApiCall]:
    """The calls in the log so far, in the order they were written; a line that is still being written is left out."""
    with log.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield parse_call(line)
