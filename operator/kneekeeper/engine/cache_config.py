"""The labels of vllm:cache_config_info: every field of vLLM 0.32's CacheConfig, as text."""

from __future__ import annotations

from kneekeeper.engine.configuration import EngineConfiguration
from kneekeeper.engine.memory import KvCache


def cache_config_labels(configuration: EngineConfiguration, kv_cache: KvCache, engine: str) -> dict[str, str]:
    """Label names and values. Fields that the simulation does not have show their defaults."""
    arguments = configuration.arguments
    fields: dict[str, object] = {
        "_block_size_resolved": True,
        "block_size": configuration.block_size_tokens,
        "cache_dtype": "auto",
        "cache_hit_alignment_tokens": None,
        "effective_attention_block_size": configuration.block_size_tokens,
        "enable_mamba_shared_prefix_checkpoint": False,
        "enable_prefix_caching": arguments.enable_prefix_caching,
        "engine": engine,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
        "hash_block_size": None,
        "is_attention_free": False,
        "kv_cache_dtype_skip_layers": [],
        "kv_cache_layout": None,
        "kv_cache_max_concurrency": kv_cache.max_concurrency,
        "kv_cache_memory_bytes": arguments.kv_cache_memory_bytes,
        "kv_cache_size_tokens": kv_cache.size_tokens,
        "kv_offloading_backend": "native",
        "kv_offloading_size": None,
        "kv_sharing_fast_prefill": False,
        "mamba_block_size": None,
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": None,
        "mamba_ssm_cache_dtype": "auto",
        "num_cpu_blocks": None,
        "num_gpu_blocks": kv_cache.num_gpu_blocks,
        "num_gpu_blocks_override": arguments.num_gpu_blocks_override,
        "prefix_cache_retention_interval": 0,
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": None,
        "replayssm_buffer_len": 16,
        "skip_page_size_padded": None,
        "sliding_window": None,
        "swa_bounded_replay": True,
        "use_kda_recoverssm": False,
        "use_replayssm": False,
        "user_specified_block_size": arguments.block_size is not None,
    }
    return {name: str(value) for name, value in fields.items()}
