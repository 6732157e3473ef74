"""Bounded reads from an engine: by IP address only, no proxies, no redirects, limited in time and size."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping

import httpx

from kneekeeper.api.serving_profile import Scheme

READ_TIMEOUT_S = 5.0
LARGEST_ANSWER_BYTES = 8 * 1024 * 1024


class EngineUnreachable(Exception):
    """An engine did not answer as it should; `why` is for people."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url
        self.why = why


def open_http() -> httpx.AsyncClient:
    """A client for engines; close it when done. Proxies of the environment are not for pods."""
    # Certificates are not asked for, as by the kubelet's probes: nothing secret is sent, only /metrics is read.
    return httpx.AsyncClient(timeout=READ_TIMEOUT_S, follow_redirects=False, trust_env=False, verify=False, headers={})


def authority(host: str, port: int) -> str:
    """Host and port as they stand in a URL. Raises ValueError when `host` is not an IP address."""
    address = ipaddress.ip_address(host)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


async def fetch(
    http: httpx.AsyncClient,
    host: str,
    port: int,
    path: str,
    headers: Mapping[str, str] | None = None,
    scheme: Scheme = Scheme.HTTP,
) -> bytes:
    """The body of a 200 answer to GET.

    Raises ValueError when `host` is not an IP address: a name could lead anywhere. Raises EngineUnreachable.
    """
    url = f"{scheme}://{authority(host, port)}{path}"
    body = bytearray()
    try:
        async with (
            asyncio.timeout(READ_TIMEOUT_S),
            http.stream("GET", url, headers=dict(headers or {})) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise EngineUnreachable(url, f"it answered with HTTP {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise EngineUnreachable(url, f"its answer is longer than {LARGEST_ANSWER_BYTES} bytes")
    except TimeoutError:
        raise EngineUnreachable(url, f"it did not answer within {READ_TIMEOUT_S:g}s") from None
    except httpx.HTTPError as error:
        raise EngineUnreachable(url, str(error) or type(error).__name__) from error
    return bytes(body)
