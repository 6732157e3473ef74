"""What the API server may answer, as errors of this project; each message names the request and the cause."""

from __future__ import annotations

import math


class KubeError(Exception):
    """A request to the API server that did not succeed."""


class NotFound(KubeError):
    """The object, or its whole kind, does not exist."""


class Conflict(KubeError):
    """The object changed since it was read: read it again and decide anew."""


class AlreadyExists(Conflict):
    """An object of this name is there already."""


class Forbidden(KubeError):
    """Not allowed, by RBAC, a quota or an admission policy; the message is the API server's."""


class Invalid(KubeError):
    """The API server refuses the content; asking again will not help. The message is the API server's."""


class ServerTrouble(KubeError):
    """The API server is overloaded, broken or out of reach; ask again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


DEFAULT_RETRY_AFTER_S = 5.0
LONGEST_RETRY_AFTER_S = 300.0
"""A server that asks for more is asked again all the same: it may be a proxy that is wrong."""

LONGEST_MESSAGE = 1024


def error_of_response(request: str, http_status: int, body: object, retry_after: str | None) -> KubeError:
    """The error for an answer that is none of 2xx. `body` is the decoded answer, if it could be decoded."""
    status = body if isinstance(body, dict) else {}
    reason = str(status.get("reason") or "")
    cause = str(status.get("message") or f"HTTP {http_status}")[:LONGEST_MESSAGE]
    message = f"{request}: {cause}"
    match http_status:
        case 404:
            return NotFound(message)
        case 409:
            return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
        case 401:
            # A token that has just expired is read anew; taken for a refusal, it would hide objects that exist.
            return ServerTrouble(f"{message}; check the operator's ServiceAccount token", DEFAULT_RETRY_AFTER_S)
        case 403:
            return Forbidden(message)
        case 410:
            return ServerTrouble(message, 0.0)  # the continue token of a list has expired: list again
        case 400 | 405 | 413 | 415 | 422:
            return Invalid(message)
        case _:
            return ServerTrouble(message, _seconds(retry_after))


def _seconds(retry_after: str | None) -> float:
    try:
        asked_s = float(retry_after or DEFAULT_RETRY_AFTER_S)
    except ValueError:
        return DEFAULT_RETRY_AFTER_S
    return min(max(0.0, asked_s), LONGEST_RETRY_AFTER_S) if math.isfinite(asked_s) else DEFAULT_RETRY_AFTER_S
