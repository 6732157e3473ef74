"""Bodies of requests, as the simulated engine reads them."""

from __future__ import annotations

import json
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.engine.requests import Endpoint, GenerationRequest, RequestError, RequestReader

_MODEL_LENGTH = 1000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(
    ["prompt", "messages", "content", "max_tokens", "min_tokens", "n", "seed", "stream", "stream_options", "ignore_eos"]
)


def reader(mean_output_tokens: float = 20.0) -> RequestReader:
    return RequestReader(_MODEL_LENGTH, mean_output_tokens, random.Random(1))


def read(**body: object) -> GenerationRequest:
    return reader().read(Endpoint.COMPLETIONS, json.dumps({"prompt": [1]} | body).encode())


def answered(endpoint: Endpoint, body: bytes) -> GenerationRequest | str:
    """The request, or the words of the refusal."""
    try:
        return reader().read(endpoint, body)
    except RequestError as error:
        return str(error)


@given(st.sampled_from(Endpoint), st.dictionaries(fields, json_values) | json_values)
@settings(deadline=None)
def test_any_json_is_a_request_that_can_be_served_or_an_error_with_words(endpoint: Endpoint, body: object) -> None:
    request = answered(endpoint, json.dumps(body).encode())
    if isinstance(request, str):
        assert request
    else:
        assert request.prompt_tokens >= 1
        assert 1 <= request.output_tokens <= request.max_tokens
        assert request.prompt_tokens + request.max_tokens <= _MODEL_LENGTH


@given(st.sampled_from(Endpoint), st.binary(max_size=40))
@settings(deadline=None)
def test_any_bytes_are_a_request_or_an_error_with_words(endpoint: Endpoint, body: bytes) -> None:
    assert answered(endpoint, body)


def test_lengths_of_answers_that_may_stop_have_the_given_mean() -> None:
    source = reader(mean_output_tokens=20.0)
    body = json.dumps({"prompt": [1], "max_tokens": 900}).encode()
    lengths = [source.read(Endpoint.COMPLETIONS, body).output_tokens for _ in range(4000)]
    assert fmean(lengths) == pytest.approx(20.0, rel=0.05)
    assert min(lengths) == 1


def test_a_mean_of_one_token_stops_at_once() -> None:
    request = reader(1.0).read(Endpoint.COMPLETIONS, b'{"prompt": "a", "max_tokens": 9}')
    assert (request.output_tokens, request.finish_reason) == (1, "stop")


def test_the_same_seed_gives_the_same_length_whatever_came_before() -> None:
    assert read(max_tokens=900, seed=3).output_tokens == read(max_tokens=900, seed=3).output_tokens


def test_usage_per_chunk_needs_usage() -> None:
    def wants(**options: bool | None) -> tuple[bool, bool]:
        request = read(stream=True, stream_options=options)
        return request.include_usage, request.continuous_usage

    assert wants(continuous_usage_stats=True) == (False, False)
    assert wants(include_usage=True) == (True, False)
    assert wants(include_usage=True, continuous_usage_stats=True) == (True, True)
    assert wants(include_usage=None) == (False, False)


def test_content_in_parts_counts_as_its_text() -> None:
    parts = [{"type": "text", "text": "12345678"}, {"type": "image_url", "image_url": {"url": "x"}}]
    body = json.dumps({"messages": [{"role": "user", "content": parts}, {"role": "user"}]}).encode()
    # Two tokens of text and four of the template, then four of a message without content.
    assert reader().read(Endpoint.CHAT, body).prompt_tokens == 10


def test_what_only_python_calls_json_is_refused() -> None:
    with pytest.raises(RequestError, match="NaN"):
        reader().read(Endpoint.COMPLETIONS, b'{"prompt": [1], "temperature": NaN}')
