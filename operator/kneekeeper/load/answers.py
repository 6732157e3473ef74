"""From the bytes of an exchange to one row: the meaning of server-sent events, apart from the path of time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import orjson

from kneekeeper.api.stage import Outcome
from kneekeeper.load.frames import Ending, Exchange

_DONE = b"[DONE]"
_LONGEST_PROBLEM = 200
_CHAT_CONTENT = ("content", "reasoning_content", "reasoning", "tool_calls")


class AnswerError(ValueError):
    """The answer is not a complete stream of completion chunks. The request counts as failed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Times are seconds from the stage's start; without a first token `first_s` is `last_s`."""

    index: int
    intended_s: float
    sent_s: float
    first_s: float
    last_s: float
    prompt_tokens: int
    output_tokens: int
    first_chunk_tokens: int
    chunks: int
    outcome: Outcome
    status: int
    problem: str
    missing_tokens: int = 0
    """Of those that were asked for, by the server's own count; 0 where it tells none."""


@dataclass(slots=True)
class Stream:
    """What has been read of a stream of chunks. Times are those of the pieces in which the chunks ended.

    `first_chunk_tokens` came at the time `first`: more than one where the server merged tokens into a chunk, or
    several chunks were received at once. The time that the later tokens took says nothing of them.
    """

    first: float | None = None
    last: float = 0.0
    chunks: int = 0
    first_chunk_tokens: int = 1
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    done: bool = False

    @property
    def tokens(self) -> int:
        """What the server says, else one a chunk."""
        return self.chunks if self.output_tokens is None else self.output_tokens

    def read(self, body: bytes, lengths: list[int], stamps: list[float]) -> None:
        """Read a body that came in pieces of `lengths` at the times `stamps`; what came before an error stays.

        Comments, other fields and empty lines are skipped. Every `data:` line is a chunk of its own: JSON
        holds no line breaks. Raises AnswerError at a line that is not a chunk and at an error of the server.
        """
        ends = list(accumulate(lengths))
        piece, at = 0, 0
        while not self.done and at < len(body):
            end = body.find(b"\n", at)
            if end < 0:
                end = len(body)
            line = body[at:end].rstrip(b"\r")
            if line.startswith(b"data:"):
                while ends[piece] < end:
                    piece += 1
                self._read_data(line[5:].strip(), stamps[piece])
            at = end + 1

    def _read_data(self, data: bytes, now: float) -> None:
        if data == _DONE:
            self.done = True
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise AnswerError("a chunk of the stream is not JSON") from error
        if not isinstance(chunk, dict):
            raise AnswerError("a chunk of the stream is not an object")
        if chunk.get("error") or chunk.get("object") == "error":
            raise AnswerError(f"the server ended the stream with an error: {error_message(chunk)}")
        usage = chunk.get("usage")
        completion = _count(usage, "completion_tokens")
        if completion is not None:
            self.output_tokens = completion
            prompt = _count(usage, "prompt_tokens")
            self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        if not _carries_tokens(chunk.get("choices")):
            return
        self.chunks += 1
        self.last = now
        if self.first is None:
            self.first = now
        if now == self.first:
            self.first_chunk_tokens = completion or self.chunks


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else None


def _carries_tokens(choices: Any) -> bool:
    """Whether a chunk stands for tokens. Text may be empty (half a UTF-8 character); a chat's first chunk may
    name only the role."""
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    delta = choices[0].get("delta")
    if not isinstance(delta, dict):
        return "text" in choices[0]
    return "role" not in delta or any(delta.get(name) for name in _CHAT_CONTENT)


def error_message(answer: Any) -> str:
    """What an error answer says in words, at most 200 characters; empty when it says nothing."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    message = error.get("message", "") if isinstance(error, dict) else error
    return message[:_LONGEST_PROBLEM] if isinstance(message, str) else ""


def read_exchange(exchange: Exchange, started_at: float, asked_prompt_tokens: int, asked_output_tokens: int) -> Row:
    """The row of an exchange. `asked_prompt_tokens` stands in where the server does not tell the prompt's length.

    Ok is only a complete stream with status 200, at least one token, and the end mark.
    """
    stream, problem = Stream(), exchange.problem
    if exchange.status in (0, 200):
        try:
            stream.read(exchange.body, list(exchange.lengths), list(exchange.stamps_s))
        except AnswerError as error:
            problem = problem or str(error)
    match exchange.ending:
        case Ending.TIMED_OUT:
            outcome = Outcome.TIMEOUT
        case Ending.ABORTED:
            outcome = Outcome.ABORTED
        case Ending.BROKEN:
            outcome = Outcome.ERROR
        case Ending.COMPLETE:
            problem = problem or _incomplete(exchange, stream)
            outcome = Outcome.ERROR if problem else Outcome.OK
    last = stream.last if outcome is Outcome.OK else exchange.ended_s
    first = last if stream.first is None else stream.first
    told = stream.output_tokens
    return Row(
        index=exchange.index,
        intended_s=exchange.intended_s - started_at,
        sent_s=exchange.sent_s - started_at,
        first_s=first - started_at,
        last_s=last - started_at,
        prompt_tokens=asked_prompt_tokens if stream.prompt_tokens is None else stream.prompt_tokens,
        output_tokens=stream.tokens,
        first_chunk_tokens=min(stream.first_chunk_tokens, max(stream.tokens, 1)),
        chunks=stream.chunks,
        outcome=outcome,
        status=exchange.status,
        problem=problem,
        missing_tokens=0 if told is None else max(0, asked_output_tokens - told),
    )


def _incomplete(exchange: Exchange, stream: Stream) -> str:
    """Why an answer that ended as HTTP demands is not a good one; empty when it is."""
    if exchange.status != 200:
        try:
            said = error_message(orjson.loads(exchange.body))
        except orjson.JSONDecodeError:
            said = ""
        return f"HTTP status {exchange.status}" + (f": {said}" if said else "")
    if not stream.done:
        return "the stream ended without [DONE]"
    return "" if stream.chunks else "the stream brought no token"
