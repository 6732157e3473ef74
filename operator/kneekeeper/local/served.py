"""What a server says of itself at /v1/models, and why it may not say it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
from pydantic import BaseModel, SecretStr, ValidationError

READ_TIMEOUT_S = 10.0
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
"""What OpenSSL says when the answer to its greeting is plain HTTP, or none."""


class ServerError(Exception):
    """The server cannot be used as it is. The message has the next step."""


class ServerAbsent(ServerError):
    """Nothing answers there (yet)."""


class ServedModel(BaseModel):
    """One entry of /v1/models; only vLLM and its kin tell `max_model_len` (tokens)."""

    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    data: list[ServedModel]


@dataclass(frozen=True)
class BaseUrl:
    """Where a server's paths begin: `http://127.0.0.1:8000` and perhaps a root path, without a slash at the end."""

    url: str
    headers: dict[str, str]

    @classmethod
    def of(cls, url: str, api_key: SecretStr | None) -> BaseUrl:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key.get_secret_value()}"}
        return cls(url.rstrip("/"), headers)


def open_http(ca_file: Path | None = None) -> httpx.AsyncClient:
    """A client for servers that the user names; proxies of the environment are not between us and them.

    `ca_file` holds the certificates to trust instead of the system's. Raises OSError when it cannot be read.
    """
    verify = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    return httpx.AsyncClient(timeout=READ_TIMEOUT_S, follow_redirects=False, trust_env=False, verify=verify)


async def read_models(http: httpx.AsyncClient, base: BaseUrl) -> tuple[ServedModel, ...]:
    """The models that it serves, at least one. Raises ServerAbsent and ServerError."""
    url = f"{base.url}/v1/models"
    try:
        answer = await http.get(url, headers=base.headers)
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise ServerAbsent(f"No server answers at {base.url}: {why}. {_next_step(base.url, error)}") from error
    if answer.status_code in (401, 403):
        told = "it refuses this API key" if base.headers else "it asks for an API key"
        raise ServerError(f"{url}: {told} (HTTP {answer.status_code}). Give the key by --api-key-file.")
    if answer.status_code != httpx.codes.OK:
        raise ServerError(
            f"{url} answers with HTTP {answer.status_code}: this is no server with OpenAI's API, or not its root. "
            "Give the address that /v1/models follows."
        )
    try:
        models = _Models.model_validate(orjson.loads(answer.content)).data
    except (orjson.JSONDecodeError, ValidationError):
        raise ServerError(f"{url} gives no list of models. Give the address of a server with OpenAI's API.") from None
    if not models:
        raise ServerError(f"{url} lists no model. Load one first.")
    return tuple(models)


def _next_step(url: str, error: httpx.HTTPError) -> str:
    secure = url.startswith("https://")
    if secure and any(sign in str(error) for sign in _NOT_TLS):
        return f"It does not speak HTTPS: use http://{url.removeprefix('https://')}."
    if not secure and isinstance(error, httpx.RemoteProtocolError):
        return f"Where it speaks HTTPS, use https://{url.removeprefix('http://')}; else look at its log."
    return "Start it, or correct the address."


async def is_healthy(http: httpx.AsyncClient, base: BaseUrl) -> bool:
    """Whether /health answers 200, as vLLM's does once it serves."""
    try:
        answer = await http.get(f"{base.url}/health", headers=base.headers)
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK
