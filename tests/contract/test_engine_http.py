"""The simulated engine over HTTP: what clients, probes and operators of a real vLLM rely on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.engine_process import FAST, Engine, running_engine

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
WITH_USAGE = {"include_usage": True}
EACH_WITH_USAGE = {"include_usage": True, "continuous_usage_stats": True}
MESSAGES = [{"role": "user", "content": "twelve bytes"}]
_MODEL_LENGTH = 512


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    flags = ("--max-model-len", str(_MODEL_LENGTH), "--max-num-seqs", "4")
    with running_engine(FAST, "serve", "models/tiny", *flags, "--served-model-name", "tiny", "alias") as engine:
        yield engine


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == answer.status_code
    return error


def test_a_completion_stream_has_one_chunk_per_token_then_usage_then_done(engine: Engine) -> None:
    *chunks, usage, done = engine.events(
        COMPLETIONS, prompt=[1, 2, 3], max_tokens=7, ignore_eos=True, stream_options=WITH_USAGE
    )
    tokens = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]"
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * 6 + ["length"]
    assert all("usage" not in token and token["object"] == "text_completion" for token in tokens)
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"] == {"prompt_tokens": 3, "total_tokens": 10, "completion_tokens": 7}
    assert len({token["id"] for token in tokens}) == 1


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_continuous_usage_counts_every_token(engine: Engine, path: str) -> None:
    prompt: dict[str, Any] = {"prompt": [1, 2, 3]} if path == COMPLETIONS else {"messages": MESSAGES}
    *chunks, _, _ = engine.events(path, **prompt, max_tokens=5, ignore_eos=True, stream_options=EACH_WITH_USAGE)
    counts = [json.loads(chunk)["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == ([1, 2, 3, 4, 5] if path == COMPLETIONS else [0, 1, 2, 3, 4, 5])


def test_a_chat_stream_begins_with_the_role_alone(engine: Engine) -> None:
    *chunks, done = engine.events(CHAT, messages=MESSAGES, max_tokens=3, ignore_eos=True)
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert done == "[DONE]"
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert all(set(choice["delta"]) == {"content"} for choice in choices[1:])
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_one_token_is_complete(engine: Engine, path: str, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": "a", "messages": MESSAGES, "max_tokens": 1}
    if not stream:
        assert engine.post(path, **body).json()["usage"]["completion_tokens"] == 1
    else:
        *_, last, done = engine.events(path, **body)
        assert json.loads(last)["choices"][0]["finish_reason"] in ("length", "stop")
        assert done == "[DONE]"


def test_whole_answers_carry_text_and_usage(engine: Engine) -> None:
    completion = engine.post(COMPLETIONS, prompt=[1] * 9, max_tokens=4, ignore_eos=True).json()
    assert completion["choices"][0]["text"] == " tok tok tok tok"
    assert completion["choices"][0]["finish_reason"] == "length"
    assert completion["usage"]["prompt_tokens"] == 9
    chat = engine.post(CHAT, messages=MESSAGES, max_completion_tokens=2, ignore_eos=True).json()
    assert chat["object"] == "chat.completion"
    assert chat["choices"][0]["message"]["content"] == " tok tok"
    # Twelve bytes are three tokens, the template adds four.
    assert chat["usage"] == {
        "prompt_tokens": 7,
        "total_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("12345678", 2), ("123456789", 3), (["four"], 1), ([[7] * 5], 5), ("ä" * 4, 2)]
)
def test_prompts_count_one_token_per_id_or_per_four_bytes(engine: Engine, prompt: Any, tokens: int) -> None:
    answer = engine.post(COMPLETIONS, prompt=prompt, max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == tokens


def test_answers_stop_by_themselves_unless_told_otherwise(engine: Engine) -> None:
    def answer(**more: Any) -> tuple[int, str]:
        body = engine.post(COMPLETIONS, prompt=[1], max_tokens=400, seed=5, **more).json()
        return body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]

    tokens, reason = answer()
    assert (answer(), reason) == ((tokens, reason), "stop")
    assert tokens < 300
    assert answer(min_tokens=300) == (300, "stop")
    assert answer(ignore_eos=True) == (400, "length")


def test_max_tokens_is_16_for_completions_and_what_fits_for_chats(engine: Engine) -> None:
    completion = engine.post(COMPLETIONS, prompt=[1], ignore_eos=True).json()
    assert completion["usage"]["completion_tokens"] == 16
    for body in ({}, {"max_tokens": 10_000}):
        chat = engine.post(CHAT, messages=MESSAGES, ignore_eos=True, **body).json()
        assert chat["usage"]["total_tokens"] == _MODEL_LENGTH


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (
            {"prompt": [1] * 513},
            "maximum context length is 512 tokens. However, your prompt contains at least 513",
            "input_tokens",
        ),
        ({"prompt": [1] * 512}, "max_tokens must be at least 1, got 0.", "max_tokens"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens must be at least 1, got 0.", "max_tokens"),
        ({"prompt": [1], "max_tokens": 2, "min_tokens": 3}, "min_tokens must be less than", None),
        ({"prompt": []}, "You must pass at least one prompt", None),
        ({"prompt": [1], "n": 2}, "one choice", "n"),
        ({"prompt": ["a", "b"]}, "one prompt per request", "prompt"),
        ({"prompt": [1], "stream_options": WITH_USAGE}, "when `stream=True`", "stream_options"),
        ({}, "must be provided and non-empty", "prompt"),
    ],
)
def test_a_bad_request_is_answered_with_400_and_the_culprit(
    engine: Engine, body: dict[str, Any], message: str, param: str | None
) -> None:
    answer = engine.post(COMPLETIONS, **body)
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["param"]) == (400, "BadRequestError", param)
    assert message in error["message"]


def test_a_body_that_is_no_json_is_answered_with_400(engine: Engine) -> None:
    assert error_of(httpx.post(f"{engine.url}{COMPLETIONS}", content=b"{"))["code"] == 400


def test_an_unknown_model_is_answered_with_404_and_each_served_name_is_known(engine: Engine) -> None:
    error = error_of(engine.post(CHAT, model="models/tiny", messages=MESSAGES))
    assert (error["code"], error["type"]) == (404, "NotFoundError")
    assert error["message"] == "The model `models/tiny` does not exist. Valid aliases: tiny, alias."
    for name in ("tiny", "alias"):
        assert engine.post(COMPLETIONS, model=name, prompt=[1], max_tokens=1).json()["model"] == name


def test_the_small_endpoints_answer_as_vllms(engine: Engine) -> None:
    models = httpx.get(f"{engine.url}/v1/models").json()
    assert [(card["id"], card["root"], card["max_model_len"]) for card in models["data"]] == [
        ("tiny", "models/tiny", _MODEL_LENGTH),
        ("alias", "models/tiny", _MODEL_LENGTH),
    ]
    assert httpx.get(f"{engine.url}/version").json() == {"version": "0.32.0"}
    assert httpx.get(f"{engine.url}/load").json() == {"server_load": 0}
    for answer in (
        httpx.get(f"{engine.url}/health"),
        httpx.get(f"{engine.url}/ping"),
        httpx.post(f"{engine.url}/ping"),
    ):
        assert (answer.status_code, answer.content) == (200, b"")


def test_counters_and_histograms_agree_with_each_other_and_with_the_client(engine: Engine) -> None:
    before = engine.samples()
    lengths = [1, 2, 9, 30, 30]
    with httpx.Client(base_url=engine.url) as client:
        for number, tokens in enumerate(lengths):
            prompt = [500 + number] * 20  # none of them in the prefix cache
            client.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": tokens, "ignore_eos": True})
    after = engine.samples()

    def delta(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after[key] - before.get(key, 0.0)

    assert delta("vllm:prompt_tokens_total") == 20 * len(lengths)
    assert delta("vllm:prompt_tokens_by_source_total", source="local_compute") == 20 * len(lengths)
    assert delta("vllm:generation_tokens_total") == sum(lengths)
    assert delta("vllm:request_success_total", finished_reason="length") == len(lengths)
    for family in (
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
    ):
        assert delta(f"vllm:{family}_count") == len(lengths)
        assert delta(f"vllm:{family}_bucket", le="+Inf") == len(lengths)
    assert delta("vllm:time_to_first_token_seconds_count") == len(lengths)
    assert delta("vllm:inter_token_latency_seconds_count") == sum(lengths) - len(lengths)
    decode_s = delta("vllm:request_decode_time_seconds_sum")
    assert delta("vllm:inter_token_latency_seconds_sum") == pytest.approx(decode_s)
    assert delta("vllm:request_inference_time_seconds_sum") == pytest.approx(
        decode_s + delta("vllm:request_prefill_time_seconds_sum")
    )
    assert delta("vllm:request_generation_tokens_sum") == sum(lengths)
    assert delta("vllm:request_params_max_tokens_sum") == sum(lengths)
    assert delta("http_requests_total", handler=COMPLETIONS, method="POST", status="2xx") == len(lengths)
    # One-token answers count as zero, as in vLLM.
    assert delta("vllm:request_time_per_output_token_seconds_bucket", le="0.01") >= 1


def test_a_client_that_goes_away_frees_its_slot_and_its_blocks(engine: Engine) -> None:
    body = json.dumps({"prompt": [1] * 100, "max_tokens": 400, "ignore_eos": True, "stream": True})
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    finished = engine.sample("vllm:request_success_total", finished_reason="length")
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall((head + body).encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
        engine.wait_for("vllm:num_requests_running", 1.0)
    engine.wait_for("vllm:num_requests_running", 0.0)
    assert engine.sample("vllm:kv_cache_usage_perc") == 0.0
    assert engine.sample("vllm:request_success_total", finished_reason="length") == finished
    assert engine.sample("vllm:request_success_total", finished_reason="abort") == 0.0


def test_pipelined_requests_are_answered_in_order(engine: Engine) -> None:
    def request(tokens: int) -> bytes:
        body = json.dumps({"prompt": [1] * tokens, "max_tokens": 1}).encode()
        return f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    last = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as client:
        client.sendall(request(3) + request(5) + last)
        received = b"".join(iter(lambda: client.recv(65536), b""))
    marks = (b'"prompt_tokens":3', b'"prompt_tokens":5', b'"version"')
    positions = [received.find(mark) for mark in marks]
    assert positions == sorted(positions)
    assert -1 not in positions


def test_what_is_not_http_is_answered_with_400_and_hung_up(engine: Engine) -> None:
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 400 ")


def test_an_api_key_guards_v1_and_nothing_else() -> None:
    with running_engine(FAST, "serve", "m", "--api-key", "secret", "other", "--root-path", "/base") as engine:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            answer = httpx.get(f"{engine.url}/v1/models", headers=headers)
            assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
        for key in ("secret", "other"):
            assert httpx.get(f"{engine.url}/v1/models", headers={"Authorization": f"Bearer {key}"}).is_success
        assert httpx.get(f"{engine.url}/base/v1/models").status_code == 401
        for path in ("/health", "/metrics", "/version", "/base/health"):
            assert httpx.get(f"{engine.url}{path}").status_code == 200


def test_without_log_stats_there_is_no_vllm_metric() -> None:
    with running_engine(FAST, "serve", "m", "--disable-log-stats") as engine:
        assert engine.post(COMPLETIONS, prompt=[1], max_tokens=1).is_success
        text = httpx.get(f"{engine.url}/metrics").text
    assert "vllm:" not in text
    assert "process_cpu_seconds_total" in text


def test_custom_buckets_replace_a_family_and_no_other() -> None:
    buckets = json.dumps({"time_to_first_token": [0.1, 0.5]})
    with running_engine(FAST, "serve", "m", "--custom-histogram-buckets", buckets) as engine:
        bounds = {
            dict(labels)["le"] for name, labels in engine.samples() if name == "vllm:time_to_first_token_seconds_bucket"
        }
        assert bounds == {"0.1", "0.5", "+Inf"}
        assert engine.sample("vllm:inter_token_latency_seconds_bucket", le="80.0") == 0


def test_a_dead_engine_is_unhealthy_and_refuses() -> None:
    fault = {"fault": {"after_s": 3.0, "kind": "EngineDead"}}
    with running_engine(FAST | fault, "serve", "m") as engine:
        # The stream begins before the engine dies, on a busy machine too, and takes 16 s.
        events = engine.events(COMPLETIONS, prompt=[1], max_tokens=8000, ignore_eos=True)
        assert json.loads(events[-2])["error"]["type"] == "InternalServerError"
        assert events[-1] == "[DONE]"
        assert httpx.get(f"{engine.url}/health").status_code == 503
        assert error_of(engine.post(COMPLETIONS, prompt=[1]))["code"] == 500
