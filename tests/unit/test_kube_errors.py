"""What the API server answers becomes an error that tells what to do."""

from __future__ import annotations

import pytest

from kneekeeper.kube.errors import (
    DEFAULT_RETRY_AFTER_S,
    LONGEST_RETRY_AFTER_S,
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerTrouble,
    error_of_response,
)


@pytest.mark.parametrize(
    ("http_status", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", ServerTrouble),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", ServerTrouble),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", ServerTrouble),
        (500, "InternalError", ServerTrouble),
        (503, "", ServerTrouble),
    ],
)
def test_each_status_has_its_error(http_status, reason, kind):
    error = error_of_response("GET /x", http_status, {"reason": reason, "message": "why"}, None)
    assert type(error) is kind
    assert str(error).startswith("GET /x: why")


def test_trouble_tells_when_to_ask_again():
    def trouble(retry_after: str | None) -> ServerTrouble:
        error = error_of_response("GET /x", 429, None, retry_after)
        assert isinstance(error, ServerTrouble)
        return error

    assert trouble("7").retry_after_s == 7.0
    assert trouble(None).retry_after_s == DEFAULT_RETRY_AFTER_S
    assert trouble("Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s == DEFAULT_RETRY_AFTER_S
    assert trouble("nan").retry_after_s == trouble("inf").retry_after_s == DEFAULT_RETRY_AFTER_S
    assert trouble("-1").retry_after_s == 0.0
    assert trouble("86400").retry_after_s == LONGEST_RETRY_AFTER_S


@pytest.mark.parametrize("body", [None, [], "text", {}])
def test_an_answer_without_a_status_object_is_told_by_its_code(body):
    assert "HTTP 500" in str(error_of_response("GET /x", 500, body, None))
