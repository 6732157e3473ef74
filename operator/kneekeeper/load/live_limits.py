"""How a running engine's limits are changed and read, through the channel of the live-tuning plugin."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from http import HTTPStatus

import httpx
from pydantic import SecretStr

from kneekeeper.livetune.limits import Limits, Refusal
from kneekeeper.livetune.messages import (
    DEFAULT_PORT,
    PATH,
    MalformedMessage,
    Report,
    read_refusal,
    read_report,
    write_limits,
)
from kneekeeper.load.pod_client import PodClient

ConnectLive = Callable[[str, SecretStr], "LiveLimits"]
"""Host and bearer token to a client of that engine's channel, which its user closes."""


def connect_live(host: str, token: SecretStr) -> LiveLimits:
    """The channel of the engine at an IP address. Raises ValueError when `host` is none."""
    address = ipaddress.ip_address(host)
    authority = f"[{address}]" if address.version == 6 else str(address)
    return LiveLimits(f"http://{authority}:{DEFAULT_PORT}", token.get_secret_value())


class LiveLimitsError(Exception):
    """Live tuning does not work with this engine, now or at all."""


class PluginMissing(LiveLimitsError):
    """Nothing answers at the channel's port: the engine has not loaded the plugin, or is gone. Restart it instead."""


class PluginMismatch(LiveLimitsError):
    """What answers there is no plugin of this protocol version, or has another token. Restart the engine instead."""


class LimitsRefused(LiveLimitsError):
    """The engine cannot take the values; `refusal` says why. The same values will be refused again."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class LiveLimits(PodClient):
    """One engine's channel at `base_url` (`http://10.0.0.7:8719`). Each call is a heartbeat.

    All methods raise PluginMissing and PluginMismatch.
    """

    async def read(self) -> Report:
        """How the limits stand."""
        return await self._ask("GET", None)

    async def change(self, limits: Limits) -> Report:
        """Want these values from the engine's next step on. Raises LimitsRefused."""
        return await self._ask("PUT", write_limits(limits))

    async def _ask(self, method: str, body: bytes | None) -> Report:
        try:
            answer = await self._client.request(method, PATH, content=body)
        except httpx.HTTPError as error:
            raise PluginMissing(
                f"the live-tuning plugin does not answer: {str(error) or type(error).__name__}"
            ) from error
        try:
            if answer.status_code == HTTPStatus.OK:
                return read_report(answer.content)
            refusal = read_refusal(answer.content)
        except MalformedMessage as error:
            raise PluginMismatch(f"{error} (HTTP {answer.status_code})") from None
        if answer.status_code == HTTPStatus.CONFLICT:
            raise LimitsRefused(refusal)
        raise PluginMismatch(f"{refusal.message} (HTTP {answer.status_code})")
