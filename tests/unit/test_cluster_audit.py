"""The audit log is read call by call."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.cluster.audit import ApiCall, parse_call, read_calls

_EVENT: dict[str, Any] = {
    "kind": "Event",
    "level": "Metadata",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/namespaces/serving/pods/chat/log",
    "verb": "get",
    "user": {"username": "system:serviceaccount:serving:agent", "groups": []},
    "userAgent": "kneekeeper/0.1",
    "objectRef": {"resource": "pods", "subresource": "log", "namespace": "serving", "name": "chat"},
    "responseStatus": {"code": 200},
    "requestReceivedTimestamp": "2026-03-01T10:00:00.123456Z",
}


def test_a_call_is_read():
    assert parse_call(json.dumps(_EVENT)) == ApiCall(
        received_at=datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=UTC),
        stage="ResponseComplete",
        verb="get",
        user="system:serviceaccount:serving:agent",
        user_agent="kneekeeper/0.1",
        uri="/api/v1/namespaces/serving/pods/chat/log",
        resource="pods/log",
        namespace="serving",
        name="chat",
        status_code=200,
    )


def test_a_path_that_is_no_resource_has_no_resource():
    event = {key: value for key, value in _EVENT.items() if key not in {"objectRef", "responseStatus", "userAgent"}}
    call = parse_call(json.dumps(event))
    assert (call.resource, call.namespace, call.name, call.status_code, call.user_agent) == ("", "", "", 0, "")


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path):
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(_EVENT) + "\n" + json.dumps(_EVENT)[:40])
    assert len(list(read_calls(log))) == 1


def test_a_call_that_the_server_did_not_believe_is_nobodys():
    assert parse_call(json.dumps(_EVENT | {"user": {}})).user == ""
