"""Reads of single values from Secrets; they travel as SecretStr, so that no log or error shows them."""

from __future__ import annotations

import base64
import binascii

from pydantic import SecretStr

from kneekeeper.api.model import LocalReference
from kneekeeper.domain.names import TOKEN_KEY, agent_name
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.resources import SECRETS


class SecretUnusable(Exception):
    """A Secret that a profile names cannot be used; the message says what to correct."""


async def read_secret_key(kube: Kube, namespace: str, reference: LocalReference) -> str:
    """The key that the reference means: the one it names, else the Secret's only one.

    Raises SecretUnusable.
    """
    return (await _read(kube, namespace, reference))[0]


async def read_secret_value(kube: Kube, namespace: str, reference: LocalReference) -> SecretStr:
    """The value without surrounding white space, which editors and `echo` leave behind.

    Raises SecretUnusable.
    """
    key, encoded = await _read(kube, namespace, reference)
    try:
        text = base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        raise SecretUnusable(f"Secret {reference.name}: {key} is no text; store the key as text") from None
    return SecretStr(text)


async def read_agent_token(kube: Kube, namespace: str, run: str) -> SecretStr | None:
    """The bearer token of the run's load agent; None when it has none."""
    try:
        return await read_secret_value(kube, namespace, LocalReference(name=agent_name(run), key=TOKEN_KEY))
    except SecretUnusable:
        return None


async def _read(kube: Kube, namespace: str, reference: LocalReference) -> tuple[str, str]:
    try:
        secret = await kube.get(SECRETS, namespace, reference.name)
    except NotFound:
        raise SecretUnusable(f"Secret {reference.name} does not exist; create it") from None
    except Forbidden:
        raise SecretUnusable(f"Secret {reference.name} may not be read; let the operator get Secrets here") from None
    data: dict[str, str] = secret.get("data") or {}
    key = reference.key
    if key is None:
        if len(data) != 1:
            raise SecretUnusable(f"Secret {reference.name} has {len(data)} keys; name one of them")
        key = next(iter(data))
    if key not in data:
        raise SecretUnusable(f"Secret {reference.name} has no key {key}; correct the name of the key")
    return key, data[key]
