"""Why a server does not say what it serves, told with the next step."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from kneekeeper.local.served import BaseUrl, ServerAbsent, read_models


@pytest.mark.parametrize(
    ("url", "error", "told"),
    [
        ("https://h:1", httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "use http://h:1."),
        ("https://h:1", httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "correct the address."),
        ("http://h:1", httpx.RemoteProtocolError("Server disconnected"), "Where it speaks HTTPS, use https://h:1;"),
        ("http://h:1", httpx.ConnectError("All connection attempts failed"), "Start it, or correct the address."),
    ],
)
def test_the_other_scheme_is_named_where_the_answer_hints_at_it(url: str, error: httpx.HTTPError, told: str) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise error

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
            await read_models(http, BaseUrl.of(url, None))

    with pytest.raises(ServerAbsent) as raised:
        asyncio.run(ask())
    assert told in str(raised.value)
