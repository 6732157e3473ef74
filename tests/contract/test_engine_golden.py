"""The simulated engine answers as a real vLLM 0.32 answered: status, form, words, and the order of keys.

Taken by take_http_golden.py. What no two answers share is put aside first: ids, times, generated text, the
fingerprint. A real server may merge tokens into one chunk, so equal neighbours in a stream count once.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.engine_process import FAST, Engine, running_engine
from tests.contract.take_http_golden import GOLDEN, MODEL_LENGTH, exchange

EXCHANGES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
_HEADERS_WITHOUT_MEANING = frozenset(("vary",))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    flags = ("--served-model-name", "tiny", "--max-model-len", str(MODEL_LENGTH), "--max-num-batched-tokens", "512")
    with running_engine(FAST, "--model", "/models/tiny", *flags) as engine:
        yield engine


def name_of(taken: dict[str, Any]) -> str:
    body = taken["body"]
    if isinstance(body, dict) and isinstance(body.get("prompt"), list) and len(body["prompt"]) > 3:
        body = {**body, "prompt": f"{len(body['prompt'])} tokens"}
    return f"{taken['method']} {taken['path']} {json.dumps(body)}"


def ordered(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """An object as its pairs, so that their order counts, without what differs from answer to answer."""
    return tuple((key, _settled(key, value)) for key, value in pairs)


def _settled(key: str, value: Any) -> Any:
    if key == "id" and isinstance(value, str):
        return re.sub(r"[0-9a-f]{16}$", "…", value)
    if key == "system_fingerprint" and value is not None:
        return re.sub(r"[0-9a-f]{8}$", "…", value)
    if key in ("created", "text", "content") and value is not None:
        return "…"
    return value


def settled_answer(taken: dict[str, Any]) -> list[Any]:
    """The parts of an answer: one for a whole answer, one per distinct event of a stream."""
    text = taken["answer"]
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part] if "data: " in text else [text]
    values = [json.loads(part, object_pairs_hook=ordered) if part and part != "[DONE]" else part for part in parts]
    return [_without_prompt_length(value) for value, _ in itertools.groupby(values)]


def _without_prompt_length(value: Any) -> Any:
    """Chat templates differ, so the tokens of a chat's prompt do."""
    text = repr(value)
    if "chat.completion" not in text:
        return text
    return re.sub(r"\('(prompt_tokens|total_tokens)', \d+\)", r"('\1', …)", text)


@pytest.mark.parametrize("taken", EXCHANGES, ids=name_of)
def test_an_answer_is_the_real_one(engine: Engine, taken: dict[str, Any]) -> None:
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        ours = exchange(client, taken["method"], taken["path"], taken["body"])
    assert ours["status"] == taken["status"]
    assert ours["content_type"] == taken["content_type"]
    assert set(ours["headers"]) == set(taken["headers"]) - _HEADERS_WITHOUT_MEANING
    assert settled_answer(ours) == settled_answer(taken)
