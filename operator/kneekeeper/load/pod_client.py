"""What all clients of small HTTP services in pods share: one connection pool with the run's bearer token."""

from __future__ import annotations

from typing import Self

import httpx

TIMEOUT = httpx.Timeout(10.0, connect=3.0)
"""They answer in milliseconds; samples take a second, and a busy engine holds its threads up for a step or two."""


class PodClient:
    """One service at `base_url` (`http://10.0.0.7:8080`); an empty token is none."""

    def __init__(self, base_url: str, token: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=TIMEOUT,
            transport=transport,
            trust_env=False,  # a proxy of the environment is not for addresses of pods
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
