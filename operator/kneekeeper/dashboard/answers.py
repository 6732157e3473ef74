"""What every response carries: strict headers, JSON without surprises, errors as one shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from aiohttp import web

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Nothing is fetched from elsewhere, nothing inline runs, nobody frames the page."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Problem:
    """Why a request was not answered, with the next step."""

    error: str


def json_response(value: object, status: int = 200) -> web.Response:
    """A dataclass, or a list of them, as JSON."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def problem(status: int, error: str) -> web.Response:
    """A refusal in words."""
    return json_response(Problem(error), status)


@web.middleware
async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Headers on everything that is no stream; refusals of the framework in this API's shape."""
    try:
        response = await handler(request)
    except web.HTTPException as refused:
        response = problem(refused.status, refused.reason)
        allow = refused.headers.get("Allow")
        if allow:
            response.headers["Allow"] = allow
    if not response.prepared:
        response.headers.update(HEADERS)
    return response
