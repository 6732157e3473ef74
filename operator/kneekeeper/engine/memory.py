"""What fits on the GPU: the KV cache that is left, or the error of a start that does not fit.

The order is vLLM's: weights are loaded, a profiling run with max_num_batched_tokens tokens and
max_num_seqs sampled sequences finds the peak, and what gpu_memory_utilization leaves becomes KV blocks. So
raising either limit shrinks the KV cache until the start fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.engine.configuration import EngineConfiguration
from kneekeeper.engine.hardware import Hardware
from kneekeeper.engine.start_error import EngineStartError, FailedIn

_GIB = 2**30
_BYTES_OF_CUDA_CONTEXT = _GIB // 4
_HELP = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


@dataclass(frozen=True, slots=True)
class KvCache:
    """The KV cache of a started engine, as vllm:cache_config_info tells it."""

    num_gpu_blocks: int
    """All blocks, with the one that is never handed out."""

    size_tokens: int
    """Tokens that fit."""

    max_concurrency: float
    """Requests of max_model_len tokens that fit at once."""

    available_bytes: int
    """Bytes of all blocks on one GPU."""


def allocate_kv_cache(configuration: EngineConfiguration, hardware: Hardware) -> KvCache:
    """The KV cache for this configuration on this hardware.

    Raises EngineStartError with vLLM's text for what does not fit.
    """
    arguments, gpu = configuration.arguments, hardware.gpu
    world = arguments.tensor_parallel_size
    total = gpu.memory_gib * _GIB
    weights = gpu.weights_gib * _GIB / world + _BYTES_OF_CUDA_CONTEXT
    activations = configuration.max_num_batched_tokens * gpu.activation_bytes_per_batched_token
    sampler = configuration.max_num_seqs * gpu.sampler_bytes_per_sequence
    if weights + activations > total:
        raise _out_of_memory(total, weights if weights <= total else 0.0, max(activations, weights - total))
    if weights + activations + sampler > total:
        raise _sampler_out_of_memory(configuration.max_num_seqs)
    bytes_per_block = gpu.kv_bytes_per_token * configuration.block_size_tokens / world
    if arguments.kv_cache_memory_bytes is not None:
        available = float(arguments.kv_cache_memory_bytes)
        # Nothing checks this size against the GPU before the sampler's buffers no longer fit beside it.
        if weights + activations + sampler + available > total:
            raise _sampler_out_of_memory(configuration.max_num_seqs)
    else:
        available = total * arguments.gpu_memory_utilization - weights - activations - sampler
    if available <= 0:
        raise EngineStartError(
            FailedIn.ENGINE_CORE,
            "ValueError",
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
            f"the engine. {_HELP}",
        )
    blocks = arguments.num_gpu_blocks_override or int(available // bytes_per_block)
    blocks_per_request = -(-configuration.max_model_len // configuration.block_size_tokens)
    # One block is never handed out.
    if blocks <= blocks_per_request:
        raise _model_length_too_long(configuration, blocks_per_request * bytes_per_block, available, blocks)
    _check_sequence_limit(configuration, hardware)
    return KvCache(
        num_gpu_blocks=blocks,
        size_tokens=blocks * configuration.block_size_tokens,
        max_concurrency=blocks / blocks_per_request,
        available_bytes=int(available),
    )


def _check_sequence_limit(configuration: EngineConfiguration, hardware: Hardware) -> None:
    limit, seqs = hardware.sequence_limit, configuration.max_num_seqs
    if limit is None or seqs <= limit:
        return
    raise EngineStartError(
        FailedIn.ENGINE_CORE,
        "ValueError",
        f"max_num_seqs ({seqs}) exceeds available Mamba cache blocks ({limit}). Each decode sequence requires one "
        f"Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most {limit} "
        "or increase gpu_memory_utilization.",
    )


def _out_of_memory(total_bytes: float, used_bytes: float, wanted_bytes: float) -> EngineStartError:
    return EngineStartError(
        FailedIn.ENGINE_CORE,
        "torch.OutOfMemoryError",
        f"CUDA out of memory. Tried to allocate {wanted_bytes / _GIB:.2f} GiB. GPU 0 has a total capacity of "
        f"{total_bytes / _GIB:.2f} GiB of which {max(0.0, total_bytes - used_bytes) / _GIB:.2f} GiB is free.",
    )


def _sampler_out_of_memory(max_num_seqs: int) -> EngineStartError:
    return EngineStartError(
        FailedIn.ENGINE_CORE,
        "RuntimeError",
        f"CUDA out of memory occurred when warming up sampler with {max_num_seqs} dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    )


def _model_length_too_long(
    configuration: EngineConfiguration, needed_bytes: float, available_bytes: float, blocks: int
) -> EngineStartError:
    longest = max(0, blocks - 1) * configuration.block_size_tokens
    estimate = f"Based on the available memory, the estimated maximum model length is {longest}. " if longest else ""
    return EngineStartError(
        FailedIn.ENGINE_CORE,
        "ValueError",
        f"To serve at least one request with the model's max seq len ({configuration.max_model_len}), "
        f"({round(needed_bytes / _GIB, 2)} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({round(available_bytes / _GIB, 2)} GiB). {estimate}Try increasing `gpu_memory_utilization` or decreasing "
        f"`max_model_len` when initializing the engine. {_HELP}",
    )
