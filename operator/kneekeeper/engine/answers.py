"""What the server sends: whole answers, streams and errors, byte for byte shaped as vLLM 0.32's.

A stream's chunks are rendered when the request arrives, so that a token costs one write of ready bytes.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Protocol

import orjson

from kneekeeper.engine.requests import Endpoint, GenerationRequest

_TOKEN_TEXT = " tok"
_UNUSED_OF_MESSAGE = ("refusal", "annotations", "audio", "function_call", "reasoning")
_UNUSED_OF_ANSWER = ("kv_transfer_params", "ec_transfer_params", "metrics")
_DONE = b"data: [DONE]\n\n"
_END_OF_STREAM = b"0\r\n\r\n"


class Reply(Protocol):
    """Where an answer goes: one HTTP exchange."""

    def send(self, status: int, content_type: str, body: bytes) -> None:
        """A whole answer."""

    def write(self, data: bytes) -> None:
        """Bytes of a stream whose head has been sent, framed as HTTP chunks."""

    def end(self) -> None:
        """The stream is complete."""


def error_body(message: str, error_type: str, code: int, param: str | None = None) -> bytes:
    """An error in OpenAI's form."""
    return orjson.dumps({"error": {"message": message, "type": error_type, "param": param, "code": code}})


ENGINE_DEAD_BODY = error_body(
    "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError", 500
)


class _Answer:
    """What both forms of an answer share."""

    def __init__(self, request: GenerationRequest, reply: Reply, model: str, fingerprint: str) -> None:
        self._request = request
        self._reply = reply
        self._model = model
        self._fingerprint = fingerprint
        self._is_chat = request.endpoint is Endpoint.CHAT
        self.id = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{uuid.uuid4().hex[:16]}"
        self._created = int(time.time())

    def _usage(self, generated: int) -> dict[str, int]:
        prompt = self._request.prompt_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + generated, "completion_tokens": generated}

    def _object(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        } | more


class WholeAnswer(_Answer):
    """An answer sent at once, after its last token."""

    def token(self, generated: int) -> None:
        """Nothing is sent before the end."""

    def last_token(self, generated: int) -> None:
        text = _TOKEN_TEXT * generated
        end = {
            "logprobs": None,
            "finish_reason": self._request.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }
        more: dict[str, Any] = {
            "service_tier": None,
            "system_fingerprint": self._fingerprint,
            "usage": self._usage(generated) | {"prompt_tokens_details": None, "completion_tokens_details": None},
        }
        if self._is_chat:
            message = {"role": "assistant", "content": text} | dict.fromkeys(_UNUSED_OF_MESSAGE)
            choice = {"index": 0, "message": message, **end, "routed_experts": None}
            more |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
            kind = "chat.completion"
        else:
            choice = {"index": 0, "text": text, **end, "prompt_logprobs": None, "prompt_token_ids": None}
            choice["routed_experts"] = None
            kind = "text_completion"
        body = self._object(kind, [choice], **more, **dict.fromkeys(_UNUSED_OF_ANSWER))
        self._reply.send(200, "application/json", orjson.dumps(body))

    def failed(self) -> None:
        self._reply.send(500, "application/json", ENGINE_DEAD_BODY)


class StreamedAnswer(_Answer):
    """An answer sent as server-sent events, one per token."""

    def __init__(self, request: GenerationRequest, reply: Reply, model: str, fingerprint: str) -> None:
        super().__init__(request, reply, model, fingerprint)
        self._kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        self._write = reply.write
        self._unused_of_usage = {"completion_tokens_details": None} if self._is_chat else {}
        self._event = _json(self._object(self._kind, [self._choice(None)]))
        self._chunk = _framed(self._event)
        self._continuous = request.continuous_usage

    def token(self, generated: int) -> None:
        if generated == 1 and self._is_chat:
            self._write(self._role_chunk() + self._token_chunk(generated))
        elif self._continuous:
            self._write(self._token_chunk(generated))
        else:
            self._write(self._chunk)

    def last_token(self, generated: int) -> None:
        request = self._request
        parts = [self._role_chunk()] if generated == 1 and self._is_chat else []
        last = self._object(self._kind, [self._choice(request.finish_reason)])
        if self._continuous:
            last["usage"] = self._usage(generated) | self._unused_of_usage
        if not request.include_usage:
            last["system_fingerprint"] = self._fingerprint
        parts.append(_framed(_json(last)))
        if request.include_usage:
            usage = self._object(self._kind, [], usage=self._usage(generated), system_fingerprint=self._fingerprint)
            parts.append(_framed(_json(usage)))
        parts += (_http_chunk(_DONE), _END_OF_STREAM)
        self._write(b"".join(parts))
        self._reply.end()

    def failed(self) -> None:
        self._write(_framed(ENGINE_DEAD_BODY) + _http_chunk(_DONE) + _END_OF_STREAM)
        self._reply.end()

    def _token_chunk(self, generated: int) -> bytes:
        if not self._continuous:
            return self._chunk
        return _framed(b'%b,"usage":%b}' % (self._event[:-1], _json(self._usage(generated) | self._unused_of_usage)))

    def _role_chunk(self) -> bytes:
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        usage = {"usage": self._usage(0) | self._unused_of_usage} if self._continuous else {}
        return _framed(_json(self._object(self._kind, [choice], **usage, prompt_token_ids=None, prompt_text=None)))

    def _choice(self, finish_reason: str | None) -> dict[str, Any]:
        """The choice of one event. Chat tells the stop reason in the last event only, as vLLM does."""
        if not self._is_chat:
            return {
                "index": 0,
                "text": _TOKEN_TEXT,
                "logprobs": None,
                "finish_reason": finish_reason,
                "stop_reason": None,
                "prompt_token_ids": None,
                "token_ids": None,
            }
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {"content": _TOKEN_TEXT},
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        if finish_reason is not None:
            choice["stop_reason"] = None
        return choice | {"token_ids": None}


def _json(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value)


def _framed(event: bytes) -> bytes:
    return _http_chunk(b"data: %b\n\n" % event)


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
