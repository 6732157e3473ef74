"""What an engine really runs with: the arguments, completed and checked as vLLM 0.32 does."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.domain.scheduler import SchedulerLimits
from kneekeeper.engine.arguments import EngineArguments
from kneekeeper.engine.buckets import FAMILIES
from kneekeeper.engine.hardware import Hardware
from kneekeeper.engine.start_error import invalid_configuration

_DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
_DEFAULT_MAX_NUM_SEQS = 256
_DEFAULT_BLOCK_SIZE_TOKENS = 16
_LARGEST_DEFAULT_GRAPH = 512


@dataclass(frozen=True, slots=True)
class EngineConfiguration:
    """The arguments with nothing left open."""

    arguments: EngineArguments
    max_num_seqs: int
    max_num_batched_tokens: int
    max_num_active_seqs: int
    """The live limit below max_num_seqs (`--max-num-active-seqs`)."""
    max_num_scheduled_tokens: int
    """The live limit below max_num_batched_tokens (`--max-num-scheduled-tokens`)."""
    max_model_len: int
    block_size_tokens: int

    def scheduler_limits(self, num_gpu_blocks: int) -> SchedulerLimits:
        """The scheduler's limits with vLLM's count of blocks, of which one is never handed out."""
        return SchedulerLimits(
            max_num_seqs=self.max_num_active_seqs,
            max_num_batched_tokens=self.max_num_scheduled_tokens,
            max_model_len=self.max_model_len,
            kv_blocks=num_gpu_blocks - 1,
            block_size_tokens=self.block_size_tokens,
            chunked_prefill=self.arguments.enable_chunked_prefill,
            long_prefill_token_threshold=self.arguments.long_prefill_token_threshold,
        )

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """The batch sizes with a captured CUDA graph: 1, 2, 4, then steps of 8 up to 256, then of 16."""
        if self.arguments.enforce_eager:
            return ()
        largest = min(2 * self.max_num_seqs, _LARGEST_DEFAULT_GRAPH, self.max_num_batched_tokens)
        grid = (1, 2, 4, *range(8, 256, 8), *range(256, _LARGEST_DEFAULT_GRAPH + 1, 16))
        return tuple(size for size in grid if size <= largest)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What vLLM warns of and starts with all the same."""
        product = self.max_num_seqs * self.max_model_len
        if self.max_num_batched_tokens <= product:
            return ()
        return (
            f"max_num_batched_tokens ({self.max_num_batched_tokens}) exceeds max_num_seqs * max_model_len "
            f"({product}). This may lead to unexpected behavior.",
        )


def configure(arguments: EngineArguments, hardware: Hardware) -> EngineConfiguration:
    """The defaults of vLLM's API server on a small GPU filled in, and its rules checked.

    Raises EngineStartError in vLLM's words.
    """
    max_model_len = arguments.max_model_len or hardware.model_max_len
    if max_model_len > hardware.model_max_len:
        raise invalid_configuration(
            "ModelConfig",
            f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={hardware.model_max_len} or model_max_length=None in model's config.json). "
            "To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        )
    max_num_batched_tokens = arguments.max_num_batched_tokens or _DEFAULT_MAX_NUM_BATCHED_TOKENS
    max_num_seqs = arguments.max_num_seqs or _DEFAULT_MAX_NUM_SEQS
    if arguments.max_num_batched_tokens is None:
        if not arguments.enable_chunked_prefill:
            max_num_batched_tokens = max(max_model_len, max_num_batched_tokens)
        max_num_batched_tokens = min(max_num_seqs * max_model_len, max_num_batched_tokens)
    if arguments.max_num_seqs is None:
        max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
    configuration = EngineConfiguration(
        arguments=arguments,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_active_seqs=arguments.max_num_active_seqs or max_num_seqs,
        max_num_scheduled_tokens=arguments.max_num_scheduled_tokens or max_num_batched_tokens,
        max_model_len=max_model_len,
        block_size_tokens=arguments.block_size or _DEFAULT_BLOCK_SIZE_TOKENS,
    )
    _check_ranges(arguments)
    _check_scheduler(configuration)
    return configuration


def _check_ranges(arguments: EngineArguments) -> None:
    """The bounds of single fields, which vLLM leaves to pydantic."""
    positive = (
        ("SchedulerConfig", "max_num_seqs", arguments.max_num_seqs),
        ("SchedulerConfig", "max_num_batched_tokens", arguments.max_num_batched_tokens),
        ("SchedulerConfig", "max_num_active_seqs", arguments.max_num_active_seqs),
        ("SchedulerConfig", "max_num_scheduled_tokens", arguments.max_num_scheduled_tokens),
        ("ModelConfig", "max_model_len", arguments.max_model_len),
        ("CacheConfig", "block_size", arguments.block_size),
        ("CacheConfig", "num_gpu_blocks_override", arguments.num_gpu_blocks_override),
        ("ParallelConfig", "tensor_parallel_size", arguments.tensor_parallel_size),
    )
    for config_class, name, value in positive:
        if value is not None and value < 1:
            raise invalid_configuration(config_class, f"{name} must be at least 1, got {value}")
    for family, bounds in arguments.custom_histogram_buckets.items():
        if family not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            problem = f"custom_histogram_buckets has the unknown family {family!r}; known are {known}"
            raise invalid_configuration("ObservabilityConfig", problem)
        if not bounds or list(bounds) != sorted(set(bounds)):
            problem = f"custom_histogram_buckets of {family!r} must be a strictly increasing list"
            raise invalid_configuration("ObservabilityConfig", problem)
    utilization = arguments.gpu_memory_utilization
    if not 0 < utilization <= 1:
        raise invalid_configuration(
            "CacheConfig", f"gpu_memory_utilization must be above 0 and at most 1, got {utilization}"
        )


def _check_scheduler(configuration: EngineConfiguration) -> None:
    """The rules between fields, in the order and the words of vLLM's SchedulerConfig."""
    tokens, seqs = configuration.max_num_batched_tokens, configuration.max_num_seqs
    threshold = configuration.arguments.long_prefill_token_threshold
    if tokens < configuration.max_model_len and not configuration.arguments.enable_chunked_prefill:
        problem = (
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({configuration.max_model_len}). "
            "This effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM "
            "reject longer sequences. Please increase max_num_batched_tokens or decrease max_model_len."
        )
    elif tokens < seqs:
        problem = f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})."
    elif configuration.max_num_active_seqs > seqs:
        problem = (
            f"max_num_active_seqs ({configuration.max_num_active_seqs}) cannot be greater than max_num_seqs ({seqs})."
        )
    elif threshold > configuration.max_model_len:
        problem = (
            f"long_prefill_token_threshold ({threshold}) cannot be greater than the max_model_len "
            f"({configuration.max_model_len})."
        )
    else:
        return
    raise invalid_configuration("SchedulerConfig", problem)
