"""What keeps a key of a ConfigMap from being used says what to correct."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kneekeeper.api.model import LocalReference
from kneekeeper.kube.client import Kube
from kneekeeper.kube.config_maps import ConfigMapUnusable, read_config_map_key
from kneekeeper.kube.errors import Forbidden, NotFound


class OneConfigMap:
    """A Kube that answers every read with this ConfigMap, or with this error."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    async def get(self, *_: object) -> dict[str, Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def read(answer: dict[str, Any] | Exception, key: str | None) -> str:
    return await read_config_map_key(cast(Kube, OneConfigMap(answer)), "prod", LocalReference(name="ca", key=key))


@pytest.mark.parametrize(
    ("answer", "key", "told"),
    [
        (NotFound("gone"), None, "ca does not exist; create it"),
        (Forbidden("no"), None, "may not be read; let the operator get ConfigMaps here"),
        ({"data": {"a": ""}, "binaryData": {"b": ""}}, None, "has 2 keys; name one of them"),
        ({}, None, "has 0 keys"),
        ({"data": {"a": ""}}, "b", "has no key b"),
    ],
)
async def test_a_config_map_that_cannot_be_used_says_what_to_correct(
    answer: dict[str, Any] | Exception, key: str | None, told: str
):
    with pytest.raises(ConfigMapUnusable, match=told):
        await read(answer, key)


async def test_the_only_key_is_meant_where_none_is_named():
    assert await read({"data": {"ca.crt": "PEM"}}, None) == "ca.crt"
    assert await read({"binaryData": {"ca.crt": ""}, "data": {"other": ""}}, "ca.crt") == "ca.crt"
