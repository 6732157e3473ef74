"""What fits on the simulated GPU, and the words in which a start that does not fit fails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.domain.startup_failures import FailureKind, classify
from kneekeeper.engine.arguments import parse_arguments
from kneekeeper.engine.configuration import configure
from kneekeeper.engine.hardware import GpuMemory, Hardware
from kneekeeper.engine.memory import KvCache, allocate_kv_cache
from kneekeeper.engine.start_error import EngineStartError, FailedIn

GIB = 2**30
GPU = GpuMemory(
    memory_gib=16,
    weights_gib=4,
    kv_bytes_per_token=128 * 1024,
    activation_bytes_per_batched_token=1024 * 1024,
    sampler_bytes_per_sequence=4 * 1024 * 1024,
)


def allocate(flags: str, sequence_limit: int | None = None) -> KvCache:
    hardware = Hardware(gpu=GPU, sequence_limit=sequence_limit, model_max_len=4096)
    return allocate_kv_cache(configure(parse_arguments(["serve", "m", *flags.split()]), hardware), hardware)


def failure(flags: str, sequence_limit: int | None = None) -> EngineStartError:
    with pytest.raises(EngineStartError) as caught:
        allocate(flags, sequence_limit)
    assert caught.value.failed_in is FailedIn.ENGINE_CORE
    assert "Engine core initialization failed" in caught.value.traceback("11-29 16:00:00")
    return caught.value


def test_what_utilization_leaves_becomes_kv_blocks() -> None:
    cache = allocate("--gpu-memory-utilization 0.5 --max-num-batched-tokens 1024 --max-num-seqs 64")
    # 8 GiB less 4 of weights, 0.25 of the CUDA context, 1 of activations and 0.25 of the sampler.
    assert cache.available_bytes == 2.5 * GIB
    assert cache.num_gpu_blocks == 2.5 * GIB // (16 * 128 * 1024)
    assert cache.size_tokens == 16 * cache.num_gpu_blocks
    assert cache.max_concurrency == cache.size_tokens / 4096


@given(st.integers(8, 512), st.integers(8, 512), st.integers(512, 4096), st.integers(512, 4096))
@settings(deadline=None)
def test_raising_either_limit_never_leaves_more_kv_cache(
    seqs: int, more_seqs: int, tokens: int, more_tokens: int
) -> None:
    low = allocate(f"--max-num-seqs {min(seqs, more_seqs)} --max-num-batched-tokens {min(tokens, more_tokens)}")
    high = allocate(f"--max-num-seqs {max(seqs, more_seqs)} --max-num-batched-tokens {max(tokens, more_tokens)}")
    assert high.num_gpu_blocks <= low.num_gpu_blocks


def test_a_given_size_ignores_utilization() -> None:
    cache = allocate("--kv-cache-memory-bytes 1G --gpu-memory-utilization 0.1")
    assert cache.available_bytes == GIB
    assert cache.num_gpu_blocks == 512


def test_tensor_parallelism_spreads_weights_and_cache() -> None:
    assert allocate("--tensor-parallel-size 2").size_tokens > 2 * allocate("").size_tokens


def test_a_given_count_of_blocks_is_taken() -> None:
    assert allocate("--num-gpu-blocks-override 300").num_gpu_blocks == 300


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("--max-num-batched-tokens 12K", FailureKind.OUT_OF_MEMORY),
        ("--max-num-seqs 3000 --max-num-batched-tokens 3000", FailureKind.SAMPLER_WARMUP_OUT_OF_MEMORY),
        ("--kv-cache-memory-bytes 12G", FailureKind.SAMPLER_WARMUP_OUT_OF_MEMORY),
        ("--gpu-memory-utilization 0.3", FailureKind.KV_CACHE_TOO_SMALL),
        ("--gpu-memory-utilization 0.43 --max-num-seqs 64", FailureKind.KV_CACHE_TOO_SMALL),
        ("--num-gpu-blocks-override 256", FailureKind.KV_CACHE_TOO_SMALL),
    ],
)
def test_the_product_reads_the_cause_from_the_log_of_each_failure(flags: str, kind: FailureKind) -> None:
    assert classify(failure(flags).traceback("11-29 16:00:00")).kind is kind


def test_a_model_length_that_does_not_fit_comes_with_the_length_that_would() -> None:
    message = str(failure("--kv-cache-memory-bytes 256M"))
    assert "To serve at least one request with the model's max seq len (4096), (0.5 GiB KV cache is needed" in message
    # Of 128 blocks one is never handed out.
    assert "the estimated maximum model length is 2032." in message
    assert allocate("--kv-cache-memory-bytes 256M --max-model-len 2032").num_gpu_blocks == 128


def test_a_sampler_that_does_not_fit_names_its_dummy_requests() -> None:
    message = str(failure("--max-num-seqs 3000 --max-num-batched-tokens 3000"))
    assert "CUDA out of memory occurred when warming up sampler with 3000 dummy requests." in message


def test_a_hard_limit_on_sequences_is_named_as_a_hybrid_models() -> None:
    message = str(failure("--max-num-seqs 1024", sequence_limit=969))
    assert "max_num_seqs (1024) exceeds available Mamba cache blocks (969)" in message
    assert "lower max_num_seqs to at most 969" in message
    assert allocate("--max-num-seqs 969", sequence_limit=969).num_gpu_blocks > 0
