from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kneekeeper.domain.startup_failures import MAX_QUOTED_CHARACTERS, FailureKind, classify

LOGS = Path(__file__).parent / "data" / "startup_logs"

RECORDED = {
    "batched-tokens-below-model-len": FailureKind.TOKENS_BELOW_MODEL_LENGTH,
    "kv-cache-below-model-len": FailureKind.KV_CACHE_TOO_SMALL,
    "max-num-seqs-above-batched-tokens": FailureKind.TOKENS_BELOW_SEQUENCES,
    "model-len-above-config": FailureKind.MODEL_LENGTH_TOO_LONG,
    "unknown-argument": FailureKind.UNKNOWN_FLAG,
    "vllm-port-uri": FailureKind.SERVICE_PORT_ENV,
}

# The words of vLLM's sources, for causes that need a GPU or a model to be recorded.
WORDED = [
    ("/usr/bin/python3: No module named vllm", FailureKind.NOT_INSTALLED, None),
    (
        "python3: Error while finding module specification for 'vllm.entrypoints.openai.api_server' "
        "(ModuleNotFoundError: No module named 'vllm')",
        FailureKind.NOT_INSTALLED,
        None,
    ),
    ("env: ‘vllm’: No such file or directory", FailureKind.NOT_INSTALLED, None),
    ("sh: 1: vllm: not found", FailureKind.NOT_INSTALLED, None),
    ("bash: line 1: vllm: command not found", FailureKind.NOT_INSTALLED, None),
    ("error: Failed to spawn: `vllm`", FailureKind.NOT_INSTALLED, None),
    (
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969). Please lower max_num_seqs "
        "to at most 969 or increase gpu_memory_utilization.",
        FailureKind.MAMBA_BLOCKS,
        969,
    ),
    (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        FailureKind.SAMPLER_WARMUP_OUT_OF_MEMORY,
        None,
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FailureKind.OUT_OF_MEMORY, None),
    (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        FailureKind.KV_CACHE_TOO_SMALL,
        None,
    ),
    (
        "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored "
        "in KV cache (4096).",
        FailureKind.KV_CACHE_TOO_SMALL,
        None,
    ),
    (
        "ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 72.8 GiB).",
        FailureKind.DEVICE_MEMORY_IN_USE,
        None,
    ),
    (
        "ValueError: max_num_active_seqs (64) cannot be greater than max_num_seqs (32).",
        FailureKind.ACTIVE_ABOVE_SEQUENCES,
        None,
    ),
    (
        "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (9216) is larger than "
        "max_num_batched_tokens (4096). Please increase max_num_batched_tokens.",
        FailureKind.TOKENS_BELOW_MULTIMODAL_ITEM,
        None,
    ),
    (
        "ValueError: Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens",
        FailureKind.TOKENS_BELOW_DRAFTS,
        None,
    ),
    (
        "api_server.py: error: argument --max-num-seqs: invalid int value: '1K'",
        FailureKind.INVALID_ARGUMENT,
        None,
    ),
    (
        "OSError: example/m is not a local folder and is not a valid model identifier listed on 'https://hf.example'",
        FailureKind.MODEL_NOT_FOUND,
        None,
    ),
]


def test_every_recorded_log_has_its_cause_here():
    assert {path.stem for path in LOGS.glob("*.txt")} >= RECORDED.keys()


@pytest.mark.parametrize(("log", "kind"), RECORDED.items())
def test_the_cause_is_read_from_the_log_of_a_real_vllm(log, kind):
    failure = classify((LOGS / f"{log}.txt").read_text())
    assert failure.kind == kind
    assert failure.next_step.endswith(".")
    assert "Traceback" not in failure.summary


@pytest.mark.parametrize(("line", "kind", "limit"), WORDED)
def test_the_cause_and_its_limit_are_read_from_vllms_words(line, kind, limit):
    log = f"INFO 01-01 00:00:00 [core.py:1] Loading\nTraceback (most recent call last):\n{line}\nsee root cause above"
    failure = classify(log)
    assert (failure.kind, failure.limit_hint) == (kind, limit)
    assert failure.summary == line


def test_more_sequences_than_tokens_hint_at_the_token_budget():
    failure = classify((LOGS / "max-num-seqs-above-batched-tokens.txt").read_text())
    assert failure.limit_hint == 128


def test_the_exact_cause_wins_over_the_general_one_in_the_same_log():
    log = "torch.OutOfMemoryError: CUDA out of memory.\nRuntimeError: CUDA out of memory occurred when warming up "
    assert classify(log + "sampler with 512 dummy requests.").kind == FailureKind.SAMPLER_WARMUP_OUT_OF_MEMORY


def test_an_estimated_model_length_is_no_limit_on_sequences():
    assert classify("the estimated maximum model length is 128.").limit_hint is None


def test_an_unknown_cause_quotes_the_exception_that_is_no_mere_consequence():
    log = "KeyError: 'x'\nRuntimeError: Engine core initialization failed. See root cause above.\nbye"
    failure = classify(log)
    assert failure.kind == FailureKind.UNKNOWN
    assert failure.summary == "KeyError: 'x'"


def test_an_empty_log_is_said_to_be_empty():
    assert classify(" \n").summary == "The engine ended and its log is empty."


def test_the_loggers_prefix_is_not_repeated():
    failure = classify(
        "(EngineCore pid=9) ERROR 11-29 16:01:02 [core.py:900] ValueError: VLLM_PORT 'x' appears to be a URI."
    )
    assert failure.summary == "ValueError: VLLM_PORT 'x' appears to be a URI."


def test_a_quoted_line_shows_no_secret():
    failure = classify("api_server.py: error: unrecognized arguments: --nope --api-key very-secret")
    assert failure.kind == FailureKind.UNKNOWN_FLAG
    assert "very-secret" not in failure.summary


@example("()")
@given(st.text(max_size=2000))
def test_any_text_has_a_cause_and_a_short_summary(text):
    failure = classify(text)
    assert 0 < len(failure.summary) <= MAX_QUOTED_CHARACTERS


@pytest.mark.parametrize(
    "log", ["ls: /models/vllm: No such file or directory", "ModuleNotFoundError: No module named 'vllm_plugin'"]
)
def test_what_only_has_vllm_in_its_name_does_not_say_that_vllm_is_not_installed(log: str):
    assert classify(log).kind is FailureKind.UNKNOWN


@pytest.mark.parametrize(("log", "end"), [("It broke", "It broke. "), ("It broke.", "It broke. "), ("", "is empty. ")])
def test_cause_and_next_step_are_two_sentences(log: str, end: str):
    failure = classify(log)
    assert failure.message.endswith(f"{end}{failure.next_step}")
