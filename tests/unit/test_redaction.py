from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.redaction import REDACTED, redact


@pytest.mark.parametrize(
    "text",
    [
        "--api-key S3CRET",
        "--api-key=S3CRET --port 8000",
        "--api_key 'S3CRET'",
        "vllm serve M --api-key other S3CRET --port 8000",
        "non-default args: {'api_key': ['S3CRET', 'S3CRET'], 'model': 'M'}",
        "['--api-key', 'S3CRET', '--model', 'M']",
        "Namespace(api_key=['S3CRET'], hf_token='S3CRET', port=8000)",
        '{"hf_token": "S3CRET"}',
        "HF_TOKEN=S3CRET VLLM_API_KEY=S3CRET vllm serve M",
        "HF_TOKEN: S3CRET",
        "AWS_SECRET_ACCESS_KEY=S3CRET",
        "password=S3CRET",
        "token=S3CRET",
        "Authorization: Bearer S3CRET",
        "authorization: Basic UzNDUkVU S3CRET".replace(" S3CRET", ""),
        "https://user:S3CRET@hub.example.com/model",
        "hf_S3CRETabcdefgh",
        "got sk-S3CRETabcdefgh",
    ],
)
def test_a_secret_is_hidden_wherever_a_log_may_show_it(text):
    assert "S3CRET" not in redact(text)
    assert "UzNDUkVU" not in redact(text)
    assert REDACTED in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256).",
        "--max-num-batched-tokens=4096 --tokenizer=M --tokenizer-mode auto",
        "num_speculative_tokens=5, long_prefill_token_threshold=3",
        "ValueError: VLLM_PORT 'tcp://10.96.12.34:80' appears to be a URI.",
        "see https://docs.vllm.ai/en/latest/configuration/env_vars.html",
        "CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text):
    assert redact(text) == text


def test_the_arguments_around_a_secret_stay():
    assert redact("--api-key a b --port 8000") == f"--api-key {REDACTED} --port 8000"
    assert redact("['--api-key', 'a', '--port', '8000']") == f"['--api-key', {REDACTED}, '--port', '8000']"


@given(st.text(alphabet="abk=:'\"[], -_/@", max_size=20), st.sampled_from(["--api-key ", "hf_token=", "Bearer "]))
def test_redacting_twice_changes_nothing_more(text, secret):
    once = redact(text + secret + "abc " + text)
    assert redact(once) == once


@given(
    st.sampled_from(["--api-key", "--api_key", "--hf-token", "HF_TOKEN", "VLLM_API_KEY", "password"]),
    st.sampled_from(["=", " = ", ": "]),
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789._/+-", min_size=12, max_size=40).filter(
        lambda value: value[0].isalnum()
    ),
)
def test_no_value_of_a_named_secret_survives(name, separator, value):
    joined = f"{name}={value}" if name.startswith("--") else f"{name}{separator}{value}"
    assert value not in redact(f"before {joined} after")
