"""A small asynchronous client that speaks dicts, on the transport of the official Kubernetes client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from kneekeeper.domain.names import FIELD_MANAGER
from kneekeeper.kube.errors import DEFAULT_RETRY_AFTER_S, ServerTrouble, error_of_response
from kneekeeper.kube.resources import PODS, Kind, Resource

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
PAGE_SIZE = 500
LOG_LIMIT_BYTES = 64 * 1024

_config: Any = config  # the library's own annotations are incomplete

OnAnswer = Callable[[str, int | None], None]
"""Told of every call: its method, and the answer's status, or None where none came."""

JsonPatch = Sequence[dict[str, Any]]
"""RFC 6902 operations."""


JSON = "application/json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Call:
    """One call of the API server. `body` is what is sent as JSON, None for nothing."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str | None = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Kube:
    """One connection pool to the API server. Every call is bounded in time and raises `KubeError`s only.

    Use it as an async context manager, within one event loop.
    """

    def __init__(self, configuration: Configuration, version: str, on_answer: OnAnswer | None = None) -> None:
        # Retries are the caller's: a tick that failed is simply done again.
        configuration.retries = None
        # The environment's proxy stays the same: looked for at each call, it would take a thread each time.
        configuration.proxy = configuration.proxy or _proxy_of_environment(configuration.host)
        configuration.client_session_kwargs = {"trust_env": False}
        self._api: Any = ApiClient(configuration)
        self._on_answer = on_answer
        self._api.user_agent = f"{FIELD_MANAGER}/{version}"

    @classmethod
    async def connect(
        cls,
        version: str,
        kubeconfig: str | None = None,
        on_answer: OnAnswer | None = None,
        context: str | None = None,
    ) -> Self:
        """By the given kubeconfig or context, else as a pod's ServiceAccount, else by the user's kubeconfig.

        Raises kubernetes.aio.config.ConfigException when there is none of them.
        """
        configuration = Configuration()
        if kubeconfig is None and context is None and in_a_pod():
            _config.load_incluster_config(client_configuration=configuration)
        else:
            await _config.load_kube_config(
                config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
            )
        return cls(configuration, version, on_answer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._api.close()

    @classmethod
    async def connect_as(cls, token: str, version: str, kubeconfig: str | None = None) -> Self:
        """To the same server, with this bearer token and nothing else of one's own.

        Raises kubernetes.aio.config.ConfigException when no server is known.
        """
        known = await cls.connect(version, kubeconfig)
        await known.close()
        own = known._api.configuration
        bare = Configuration(host=own.host, ssl_ca_cert=own.ssl_ca_cert)
        bare.verify_ssl = own.verify_ssl
        bare.ca_cert_data = own.ca_cert_data
        bare.tls_server_name = own.tls_server_name
        bare.api_key = {"BearerToken": token}
        bare.api_key_prefix = {"BearerToken": "Bearer"}
        return cls(bare, version)

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        """The object. Raises NotFound."""
        return await self._object(Call("GET", path_of(kind, namespace, name)))

    async def get_scale(self, kind: Kind, namespace: str, name: str) -> Resource:
        """The workload's /scale. Raises NotFound."""
        return await self._object(Call("GET", path_of(kind, namespace, name, "scale")))

    async def pages(self, kind: Kind, namespace: str = "", *, labels: str = "") -> AsyncIterator[Sequence[Resource]]:
        """As `list`, for what is too much to be held at once."""
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._object(Call("GET", path_of(kind, namespace), query))
            yield page.get("items") or []
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return
            query["continue"] = token

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Resource]:
        """All objects of the namespace, or of the cluster when it is empty, read page by page.

        `labels` is a label selector. A kind that the cluster does not know raises NotFound.
        """
        return [item async for page in self.pages(kind, namespace, labels=labels) for item in page]

    async def create(self, kind: Kind, namespace: str, body: Resource) -> Resource:
        """The object as created. Raises AlreadyExists."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self._object(Call("POST", path_of(kind, namespace), query, body))

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None
    ) -> None:
        """Its dependents are deleted in the background. Raises NotFound; Conflict when `uid` is another's."""
        options: Resource = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        await self._object(Call("DELETE", path_of(kind, namespace, name), body=options))

    async def json_patch(self, kind: Kind, namespace: str, name: str, patch: JsonPatch) -> Resource:
        """The object as patched. A `test` that does not hold raises Invalid, like content that is refused."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self._object(Call("PATCH", path_of(kind, namespace, name), query, list(patch), JSON_PATCH))

    async def replace_status(self, kind: Kind, namespace: str, name: str, body: Resource) -> Resource:
        """The object as stored. Raises Conflict when `metadata.resourceVersion` is not the newest."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self._object(Call("PUT", path_of(kind, namespace, name, "status"), query, body))

    async def replace_scale(self, kind: Kind, namespace: str, name: str, body: Resource) -> Resource:
        """The scale as stored. Raises Conflict when `metadata.resourceVersion` is not the newest."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._object(Call("PUT", path_of(kind, namespace, name, "scale"), query, body))

    async def read_json(self, path: str, query: dict[str, str]) -> Resource:
        """What lies there."""
        return await self._object(Call("GET", path, query))

    async def lines(self, path: str, query: dict[str, str], *, silence_s: float) -> AsyncIterator[bytes]:
        """The lines of an answer that does not end soon; `silence_s` without a byte is a ServerTrouble."""
        call = Call("GET", path, query, content_type=None)
        limits = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        rest = b""
        try:
            response = await self._call(call, limits)
            if not 200 <= response.status < 300:
                data = bytes(await response.read())
                raise error_of_response(str(call), response.status, _decoded(data), response.headers.get("Retry-After"))
            try:
                async for chunk in response.response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line
            finally:
                response.response.close()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = str(error) or type(error).__name__
            raise ServerTrouble(f"{call}: {why}", DEFAULT_RETRY_AFTER_S) from error

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, tail_lines: int, previous: bool = False
    ) -> str:
        """The last lines of a container's log, or of its run before the last restart.

        Raises NotFound or Invalid where there is none (yet).
        """
        query = {
            "container": container,
            "tailLines": str(tail_lines),
            "limitBytes": str(LOG_LIMIT_BYTES),
            "previous": str(previous).lower(),
        }
        path = path_of(PODS, namespace, pod, "log")
        return (await self._bytes(Call("GET", path, query, content_type=None))).decode("utf-8", "replace")

    async def _object(self, call: Call) -> Resource:
        """What all calls but those of logs and watches go through."""
        data = await self._bytes(call)
        try:
            return cast(Resource, orjson.loads(data))
        except orjson.JSONDecodeError:
            raise ServerTrouble(f"{call}: the answer is no JSON", DEFAULT_RETRY_AFTER_S) from None

    async def _bytes(self, call: Call) -> bytes:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                # The whole call is bounded above; aiohttp's own limit only tells a dead address sooner.
                response = await self._call(call, aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S))
                data = bytes(await response.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = str(error) or type(error).__name__
            raise ServerTrouble(f"{call}: {why}", DEFAULT_RETRY_AFTER_S) from error
        if 200 <= response.status < 300:
            return data
        raise error_of_response(str(call), response.status, _decoded(data), response.headers.get("Retry-After"))

    async def _call(self, call: Call, limits: aiohttp.ClientTimeout) -> Any:
        """The library's response, its body not read yet."""
        headers = {"Accept": "application/json, */*"}
        if call.content_type is not None:
            headers["Content-Type"] = call.content_type
        # The body is plain JSON: the library would look at every value of it, which costs more than all else here.
        method, url, headers, _, no_form = await self._api.param_serialize(
            call.method,
            call.path,
            query_params=list(call.query.items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        status = None
        try:
            response = await self._api.call_api(method, url, headers, call.body, no_form, _request_timeout=limits)
            status = response.status
        finally:
            if self._on_answer is not None:
                self._on_answer(call.method, status)
        return response


def _proxy_of_environment(url: str) -> str | None:
    """As HTTPS_PROXY and NO_PROXY have it."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def in_a_pod() -> bool:
    """Whether this process has a ServiceAccount of a cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _decoded(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    """Where the kind, one of its objects or a part of that lies on the API server."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    parts += [part for part in (name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)
