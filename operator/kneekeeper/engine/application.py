"""The routes of vLLM's server that load, probes, scrapers and operators use."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from kneekeeper.domain.scheduler import Request, SchedulerError
from kneekeeper.engine import VLLM_VERSION
from kneekeeper.engine.answers import ENGINE_DEAD_BODY, StreamedAnswer, WholeAnswer, error_body
from kneekeeper.engine.configuration import EngineConfiguration
from kneekeeper.engine.connection import Exchange, HttpRequest
from kneekeeper.engine.core import EngineCore, EngineState, Generation
from kneekeeper.engine.http_metrics import UNCOUNTED_PATHS, HttpMetrics
from kneekeeper.engine.prefix_cache import PrefixCache
from kneekeeper.engine.requests import Endpoint, RequestError, RequestReader

_JSON = "application/json"
_GUARDED_PREFIXES = ("/v1", "/v2", "/inference", "/cohere")
"""What an API key guards; /metrics, /health and the rest stay open, as in vLLM."""


class EngineApplication:
    """Answers requests from the engine's core and its metrics."""

    def __init__(
        self,
        configuration: EngineConfiguration,
        core: EngineCore,
        check: Callable[[Request], None],
        reader: RequestReader,
        prefix_cache: PrefixCache,
        registry: CollectorRegistry,
        clock: Callable[[], float],
    ) -> None:
        """`check` raises SchedulerError for a request that the engine could never finish."""
        self._configuration = configuration
        self._core = core
        self._check = check
        self._reader = reader
        self._prefix_cache = prefix_cache
        self._registry = registry
        self._clock = clock
        self._http_metrics = HttpMetrics(registry)
        self._names = configuration.arguments.served_model_names
        self._fingerprint = _fingerprint(configuration)
        self._created = int(time.time())
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("POST", "/ping"): self._health,
            ("GET", "/version"): lambda exchange: exchange.send(200, _JSON, orjson.dumps({"version": VLLM_VERSION})),
            ("GET", "/load"): lambda exchange: exchange.send(200, _JSON, orjson.dumps({"server_load": 0})),
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", Endpoint.COMPLETIONS.value): lambda exchange: self._generate(Endpoint.COMPLETIONS, exchange),
            ("POST", Endpoint.CHAT.value): lambda exchange: self._generate(Endpoint.CHAT, exchange),
        }
        self._paths = frozenset(path for _, path in self._routes)

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        path = self._path(request)
        if path.startswith(_GUARDED_PREFIXES) and not self._authorized(request):
            exchange.send(401, _JSON, orjson.dumps({"error": "Unauthorized"}))
            return
        route = self._routes.get((request.method, path))
        if route is not None:
            route(exchange)
        elif path in self._paths:
            allowed = ", ".join(sorted(method for method, known in self._routes if known == path))
            exchange.send(405, _JSON, orjson.dumps({"detail": "Method Not Allowed"}), f"allow: {allowed}\r\n")
        else:
            exchange.send(404, _JSON, orjson.dumps({"detail": "Not Found"}))

    def answered(self, request: HttpRequest, status: int, body_bytes: int, duration_s: float) -> None:
        path = self._path(request)
        if path in UNCOUNTED_PATHS:
            return
        handler = path if path in self._paths else "none"
        self._http_metrics.record(handler, request.method, status, len(request.body), body_bytes, duration_s)

    def _path(self, request: HttpRequest) -> str:
        return request.path.removeprefix(self._configuration.arguments.root_path)

    def _authorized(self, request: HttpRequest) -> bool:
        keys = self._configuration.arguments.api_keys
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.encode() if scheme.lower() == "bearer" else b""
        return not keys or any(hmac.compare_digest(given, key.encode()) for key in keys)

    def _health(self, exchange: Exchange) -> None:
        exchange.send(503 if self._core.state is EngineState.DEAD else 200, "text/plain", b"")

    def _metrics(self, exchange: Exchange) -> None:
        exchange.send(200, CONTENT_TYPE_LATEST, generate_latest(self._registry))

    def _models(self, exchange: Exchange) -> None:
        cards: list[dict[str, object]] = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": self._configuration.arguments.model,
                "parent": None,
                "max_model_len": self._configuration.max_model_len,
                "permission": [self._permission(name)],
            }
            for name in self._names
        ]
        exchange.send(200, _JSON, orjson.dumps({"object": "list", "data": cards}))

    def _permission(self, name: str) -> dict[str, object]:
        return {
            "id": f"modelperm-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
            "object": "model_permission",
            "created": self._created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }

    def _generate(self, endpoint: Endpoint, exchange: Exchange) -> None:
        arrival_s = self._clock()
        if self._core.state is EngineState.DEAD:
            exchange.send(500, _JSON, ENGINE_DEAD_BODY)
            return
        try:
            wanted = self._reader.read(endpoint, exchange.request.body)
        except RequestError as error:
            exchange.send(400, _JSON, error_body(str(error), error.error_type, 400, error.param))
            return
        if wanted.model is not None and wanted.model not in self._names:
            message = f"The model `{wanted.model}` does not exist. Valid aliases: {', '.join(self._names)}."
            exchange.send(404, _JSON, error_body(message, "NotFoundError", 404, "model"))
            return
        answer_form = StreamedAnswer if wanted.stream else WholeAnswer
        answer = answer_form(wanted, exchange, wanted.model or self._names[0], self._fingerprint)
        cached_tokens = self._prefix_cache.take(wanted.prompt_blocks, wanted.prompt_tokens)
        request = Request(answer.id, wanted.prompt_tokens, wanted.output_tokens, cached_tokens)
        try:
            self._check(request)
        except SchedulerError as error:
            exchange.send(400, _JSON, error_body(str(error), "BadRequestError", 400))
            return
        if wanted.stream:
            exchange.start_stream()
        exchange.on_disconnect = lambda: self._core.abort(request.id)
        self._core.submit(Generation(request, wanted.finish_reason, wanted.max_tokens, arrival_s, answer))


def _fingerprint(configuration: EngineConfiguration) -> str:
    """vLLM's version, the tensor parallelism and a hash of the model and its length."""
    world = configuration.arguments.tensor_parallel_size
    digest = hashlib.sha256(f"{configuration.arguments.model} {configuration.max_model_len}".encode()).hexdigest()
    parallelism = f"-tp{world}" if world > 1 else ""
    return f"vllm-{VLLM_VERSION}{parallelism}-{digest[:8]}"
