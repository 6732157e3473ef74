"""The bodies of /v1/completions and /v1/chat/completions, and how long their answers will be."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kneekeeper.engine.prefix_cache import block_hashes

_BYTES_PER_TOKEN = 4
_TEMPLATE_TOKENS_PER_MESSAGE = 4
_DEFAULT_COMPLETION_TOKENS = 16


class RequestError(ValueError):
    """A request that the server refuses with status 400, in vLLM's words.

    `param` is the culprit, if known; `error_type` tells a value that means nothing from one of the wrong form.
    """

    def __init__(self, message: str, param: str | None = None, error_type: str = "BadRequestError") -> None:
        super().__init__(message)
        self.param = param
        self.error_type = error_type


def _refusal(message: str, param: str, value: int | None = None) -> RequestError:
    """A refusal as vLLM words it: the parameter, and its value where it says something, in brackets."""
    shown = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return RequestError(f"{message} ({shown})", param)


class Endpoint(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a body asks for, completed with the server's defaults."""

    endpoint: Endpoint
    model: str | None
    prompt_tokens: int
    max_tokens: int
    output_tokens: int
    """Tokens that the answer will have."""
    finish_reason: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    prompt_blocks: tuple[int, ...] = ()
    """Hashes of the prompt's whole blocks, for the prefix cache."""


class _StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Body(BaseModel):
    # The real server ignores unknown fields too, and sampling parameters do not change the simulation.
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    n: int | None = 1
    seed: int | None = None
    cache_salt: str | None = None


class _CompletionBody(_Body):
    prompt: Annotated[list[int] | str | list[list[int]] | list[str] | None, Field(union_mode="left_to_right")] = None


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")

    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class _ChatBody(_Body):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: int | None = None


class RequestReader:
    """Turns bodies into requests. Lengths of answers that may stop early are drawn with `rng`."""

    def __init__(
        self, max_model_len: int, mean_output_tokens: float, rng: random.Random, block_tokens: int | None = None
    ) -> None:
        """`block_tokens` is the size of a KV block where the engine caches prefixes."""
        self._block_tokens = block_tokens
        self._max_model_len = max_model_len
        self._mean_output_tokens = mean_output_tokens
        self._rng = rng

    def read(self, endpoint: Endpoint, body: bytes) -> GenerationRequest:
        """Raises RequestError."""
        content = _parsed(body)
        try:
            if endpoint is Endpoint.COMPLETIONS:
                completion = _CompletionBody.model_validate(content)
                wanted = _DEFAULT_COMPLETION_TOKENS if completion.max_tokens is None else completion.max_tokens
                request = self._complete(endpoint, completion, _completion_prompt_tokens(completion), wanted)
                return self._with_blocks(request, completion, _completion_content(completion))
            chat = _ChatBody.model_validate(content)
        except ValidationError as error:
            raise _invalid([dict(problem) for problem in error.errors()]) from error
        wanted_chat = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
        request = self._complete(endpoint, chat, _chat_prompt_tokens(chat), wanted_chat)
        return self._with_blocks(request, chat, b"".join(message.text.encode() for message in chat.messages))

    def _with_blocks(self, request: GenerationRequest, body: _Body, content: list[int] | bytes) -> GenerationRequest:
        if self._block_tokens is None:
            return request
        block = self._block_tokens * (_BYTES_PER_TOKEN if isinstance(content, bytes) else 1)
        return replace(request, prompt_blocks=block_hashes(content, block, body.cache_salt or ""))

    def _complete(
        self, endpoint: Endpoint, body: _Body, prompt_tokens: int, wanted_tokens: int | None
    ) -> GenerationRequest:
        limit = self._max_model_len
        if body.n not in (None, 1):
            raise RequestError("this simulated server answers with one choice only; set n to 1", "n")
        if body.stream_options is not None and not body.stream:
            raise _refusal("Stream options can only be defined when `stream=True`.", "stream_options")
        if prompt_tokens > limit:
            # vLLM stops tokenising one token past the limit, and says so.
            at_least = "at least " if prompt_tokens == limit + 1 else ""
            raise _refusal(
                f"This model's maximum context length is {limit} tokens. However, your prompt contains "
                f"{at_least}{prompt_tokens} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt.",
                "input_tokens",
                prompt_tokens,
            )
        room = limit - prompt_tokens
        max_tokens = room if wanted_tokens is None else min(wanted_tokens, room)
        if max_tokens < 1:
            raise _refusal(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
        if body.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {body.min_tokens}."
            )
        output_tokens, finish_reason = self._draw_length(body, max_tokens)
        options = body.stream_options or _StreamOptions()
        return GenerationRequest(
            endpoint=endpoint,
            model=body.model,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            output_tokens=output_tokens,
            finish_reason=finish_reason,
            stream=bool(body.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        )

    def _draw_length(self, body: _Body, max_tokens: int) -> tuple[int, str]:
        """The answer's tokens, the end-of-sequence token among them, and why it ends there."""
        if body.ignore_eos or body.min_tokens == max_tokens:
            return max_tokens, "length"
        rng = self._rng if body.seed is None else random.Random(body.seed)
        drawn = 1
        if self._mean_output_tokens > 1:
            # Inverse of the geometric distribution on 1, 2, … with this mean.
            drawn = math.ceil(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / self._mean_output_tokens)) or 1
        drawn = max(drawn, body.min_tokens)
        return (drawn, "stop") if drawn <= max_tokens else (max_tokens, "length")


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        json.loads(body)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        problem = {"type": "json_invalid", "loc": (position,), "msg": "JSON decode error", "input": {}}
        raise _invalid([problem | {"ctx": {"error": reason}}]) from error
    raise RequestError("the body uses JSON that only Python knows, such as NaN; leave it out")


def _invalid(problems: list[dict[str, Any]]) -> RequestError:
    """A body of the wrong form, with pydantic's problems told as vLLM tells them."""
    told = []
    for problem in problems:
        given = problem["input"]
        if isinstance(given, (dict, list)):
            given = f"<{type(given).__name__} of {len(given)} items>"
        location = ".".join(map(str, ("body", *problem["loc"])))
        shown = {"type": problem["type"], "loc": location, "msg": problem["msg"], "input": given}
        told.append(shown | ({"ctx": problem["ctx"]} if "ctx" in problem else {}))
    label = "1 validation error" if len(told) == 1 else f"{len(told)} validation errors"
    lines = "".join(f"\n  {shown}" for shown in told)
    return RequestError(f"{label}:{lines}", str(told[0]["loc"]), "Bad Request")


def _completion_prompt_tokens(body: _CompletionBody) -> int:
    prompt = body.prompt
    if prompt is None:
        raise _refusal("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (list, str)):
        if len(prompt) > 1:
            raise RequestError("this simulated server takes one prompt per request", "prompt")
        prompt = prompt[0]
    tokens = len(prompt) if isinstance(prompt, list) else _tokens_of_bytes(len(str(prompt).encode()))
    if not tokens:
        raise RequestError("You must pass at least one prompt")
    return tokens


def _completion_content(body: _CompletionBody) -> list[int] | bytes:
    """The one prompt of a body that was found to have one."""
    prompt = (
        body.prompt[0] if isinstance(body.prompt, list) and isinstance(body.prompt[0], (list, str)) else body.prompt
    )
    return prompt if isinstance(prompt, list) else str(prompt).encode()


def _chat_prompt_tokens(body: _ChatBody) -> int:
    return sum(_tokens_of_bytes(len(message.text.encode())) + _TEMPLATE_TOKENS_PER_MESSAGE for message in body.messages)


def _tokens_of_bytes(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)
