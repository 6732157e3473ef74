"""The bodies of /v1/completions and /v1/chat/completions, and how long their answers will be."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_BYTES_PER_TOKEN = 4
_TEMPLATE_TOKENS_PER_MESSAGE = 4
_DEFAULT_COMPLETION_TOKENS = 16


class RequestError(ValueError):
    """A request that the server refuses with status 400, in vLLM's words. `param` is the culprit, if known."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


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


class _StreamOptions(BaseModel):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Body(BaseModel):
    # The real server ignores unknown fields too, and sampling parameters do not change the simulation.
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    n: int | None = 1
    seed: int | None = None


class _CompletionBody(_Body):
    prompt: Annotated[list[int] | str | list[list[int]] | list[str], Field(union_mode="left_to_right")]


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")

    content: str | list[dict[str, Any]] | None = None

    @property
    def text_bytes(self) -> int:
        if isinstance(self.content, list):
            return sum(len(str(part.get("text", "")).encode()) for part in self.content)
        return len((self.content or "").encode())


class _ChatBody(_Body):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: int | None = None


class RequestReader:
    """Turns bodies into requests. Lengths of answers that may stop early are drawn with `rng`."""

    def __init__(self, max_model_len: int, mean_output_tokens: float, rng: random.Random) -> None:
        self._max_model_len = max_model_len
        self._mean_output_tokens = mean_output_tokens
        self._rng = rng

    def read(self, endpoint: Endpoint, body: bytes) -> GenerationRequest:
        """Raises RequestError."""
        try:
            if endpoint is Endpoint.COMPLETIONS:
                completion = _CompletionBody.model_validate_json(body)
                wanted = _DEFAULT_COMPLETION_TOKENS if completion.max_tokens is None else completion.max_tokens
                return self._complete(endpoint, completion, _completion_prompt_tokens(completion), wanted)
            chat = _ChatBody.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            location = ".".join(str(part) for part in first["loc"]) or None
            raise RequestError(f"1 validation error: {location or 'body'}: {first['msg']}", location) from error
        wanted_chat = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
        return self._complete(endpoint, chat, _chat_prompt_tokens(chat), wanted_chat)

    def _complete(
        self, endpoint: Endpoint, body: _Body, prompt_tokens: int, wanted_tokens: int | None
    ) -> GenerationRequest:
        limit = self._max_model_len
        if body.n not in (None, 1):
            raise RequestError("this simulated server answers with one choice only; set n to 1", "n")
        if body.stream_options is not None and not body.stream:
            raise RequestError("Stream options can only be defined when `stream=True`.", "stream_options")
        if prompt_tokens > limit:
            raise RequestError(
                f"This model's maximum context length is {limit} tokens. However, your prompt contains "
                f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. "
                "Please reduce the length of the input prompt.",
                "input_tokens",
            )
        room = limit - prompt_tokens
        max_tokens = room if wanted_tokens is None else min(wanted_tokens, room)
        if max_tokens < 1:
            raise RequestError(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens")
        if body.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {body.min_tokens}.",
                "min_tokens",
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
            stream=body.stream,
            include_usage=options.include_usage,
            continuous_usage=options.include_usage and options.continuous_usage_stats,
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


def _completion_prompt_tokens(body: _CompletionBody) -> int:
    prompt = body.prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (list, str)):
        if len(prompt) > 1:
            raise RequestError("this simulated server takes one prompt per request", "prompt")
        prompt = prompt[0]
    tokens = len(prompt) if isinstance(prompt, list) else _tokens_of_bytes(len(str(prompt).encode()))
    if not tokens:
        raise RequestError("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    return tokens


def _chat_prompt_tokens(body: _ChatBody) -> int:
    return sum(_tokens_of_bytes(message.text_bytes) + _TEMPLATE_TOKENS_PER_MESSAGE for message in body.messages)


def _tokens_of_bytes(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)
