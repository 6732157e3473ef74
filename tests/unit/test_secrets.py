"""What keeps a value of a Secret from being read says what to correct, and never shows a value."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from kneekeeper.api.model import LocalReference
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.secrets import SecretUnusable, read_secret_value


class OneSecret:
    """A Kube that answers every read with this Secret, or with this error."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    async def get(self, *_: object) -> dict[str, Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("answer", "key", "told"),
    [
        (NotFound("gone"), None, "does not exist; create it"),
        (Forbidden("no"), None, "may not be read; let the operator get Secrets here"),
        ({"data": {"a": "", "b": ""}}, None, "has 2 keys; name one of them"),
        ({}, None, "has 0 keys"),
        ({"data": {"a": ""}}, "b", "has no key b"),
        ({"data": {"a": encoded(b"\xff\xfe")}}, "a", "a is no text"),
    ],
)
async def test_a_secret_that_cannot_be_used_says_what_to_correct(answer, key, told):
    kube = cast(Kube, OneSecret(answer))
    with pytest.raises(SecretUnusable, match=told):
        await read_secret_value(kube, "prod", LocalReference(name="keys", key=key))


async def test_white_space_around_a_value_is_not_part_of_it():
    kube = cast(Kube, OneSecret({"data": {"k": encoded(b" value\n")}}))
    value = await read_secret_value(kube, "prod", LocalReference(name="keys"))
    assert value.get_secret_value() == "value"
    assert "value" not in repr(value)
