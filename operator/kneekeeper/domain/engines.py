"""What differs between vLLM versions and hardware, and which limits an engine accepts.

Facts are from vLLM's sources: `EngineArgs.get_batch_defaults` and `SchedulerConfig.verify_max_model_len` of
the releases named beside them. Unknown is an answer here: None, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from kneekeeper.api.model import Setting

if TYPE_CHECKING:  # `arguments` uses the rules below
    from kneekeeper.domain.arguments.model import EngineArguments

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\-+a-z].*)?")

GIB_PER_LARGE_GPU = 70  # H100, H200
GIB_PER_HUGE_GPU = 160  # B200, B300

# Every batch size with a CUDA graph of its own: 1, 2, 4, then steps of 8 up to 256, then steps of 16.
SMALL_GRAPH_SIZES = (1, 2, 4)
FINE_GRAPH_STEP = 8
LAST_FINE_GRAPH_SIZE = 256
COARSE_GRAPH_STEP = 16
MAX_SEQUENCES = 4096  # beyond any default (1024) by far; bounds a list

SMALLEST_TOKEN_BUDGET = 64
MAX_TOKEN_BUDGET = 1 << 17  # a budget of 131,072 tokens crashes V1 engines (vLLM issue 15446)


class InvalidEngineVersionError(ValueError):
    """A version text that is none."""


@dataclass(frozen=True, order=True)
class EngineVersion:
    """A vLLM release; pre-releases and local builds count as the release that they lead to."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "0.32.0", "v0.20.0" or "0.33.0rc1.dev12+gabc". Raises InvalidEngineVersionError."""
        found = _VERSION.fullmatch(text.strip())
        if found is None:
            raise InvalidEngineVersionError(
                f"{text!r} is not a vLLM version; /version of the engine or the image's tag should say 0.32.0"
            )
        major, minor, patch = found.groups()
        return cls(int(major), int(minor), int(patch or 0))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Device(StrEnum):
    """What a replica computes on."""

    CUDA = "CUDA"
    CPU = "CPU"


@dataclass(frozen=True)
class Hardware:
    """One device of a replica. `memory_gib` is the device's total memory; `product` its name, if known."""

    device: Device
    memory_gib: float | None = None
    product: str = ""


def default_setting(version: EngineVersion, hardware: Hardware, world_size: int = 1) -> Setting | None:
    """The limits of an API server that is started without the two flags, before vLLM's own adjustments.

    `world_size` is tensor times pipeline parallel size. None where the releases that were read do not tell:
    before 0.8.5, GPUs of unknown size, other devices. vLLM then lowers both to what model length allows.
    """
    if version < EngineVersion(0, 8, 5):
        return None
    if hardware.device is Device.CPU:
        if version >= EngineVersion(0, 28):
            return Setting(max_num_seqs=128 * world_size, max_num_batched_tokens=2048 * world_size)
        return None  # 32 sequences in 0.9.2, 128 in 0.28: when it changed was not read
    if hardware.memory_gib is None:
        return None
    a100 = "a100" in hardware.product.lower()
    # From 0.9.2 on the A100 has the small default (vLLM pull request 17885); what lay between is not known.
    if a100 and EngineVersion(0, 8, 5) < version < EngineVersion(0, 9, 2):
        return None
    small_by_name = a100 and version >= EngineVersion(0, 9, 2)
    if hardware.memory_gib >= GIB_PER_HUGE_GPU:
        if EngineVersion(0, 26) < version < EngineVersion(0, 28):
            return None
        tokens = 16384 if version >= EngineVersion(0, 28) else 8192
        return Setting(max_num_seqs=1024, max_num_batched_tokens=tokens)
    if hardware.memory_gib >= GIB_PER_LARGE_GPU and not small_by_name:
        if version >= EngineVersion(0, 33) and "gb10" in hardware.product.lower():
            return Setting(max_num_seqs=256, max_num_batched_tokens=2048)
        return Setting(max_num_seqs=1024, max_num_batched_tokens=8192)
    return Setting(max_num_seqs=256, max_num_batched_tokens=2048)


def valid_sequence_grid(highest: int) -> list[int]:
    """All max_num_seqs up to `highest` whose full batch has a CUDA graph of its own, ascending.

    Off this grid the last few sequences of a full batch run without a full graph before vLLM 0.31
    (pull request 57355), which is a cliff in TPOT.
    """
    fine = range(FINE_GRAPH_STEP, LAST_FINE_GRAPH_SIZE + 1, FINE_GRAPH_STEP)
    coarse = range(LAST_FINE_GRAPH_SIZE + COARSE_GRAPH_STEP, MAX_SEQUENCES + 1, COARSE_GRAPH_STEP)
    return [size for size in (*SMALL_GRAPH_SIZES, *fine, *coarse) if size <= highest]


def valid_token_grid(highest: int) -> list[int]:
    """The max_num_batched_tokens to try, up to `highest`, ascending: powers of two and 1.5 times these.

    Neighbours differ by a third to a half: less would be lost in the noise of a stage.
    """
    grid: list[int] = []
    budget = SMALLEST_TOKEN_BUDGET
    while budget < MAX_TOKEN_BUDGET:
        grid += [budget, budget + budget // 2]
        budget *= 2
    return [tokens for tokens in grid if tokens <= highest]


@dataclass(frozen=True)
class TokenFloor:
    """The smallest token budget that is known to work, and the rule that asks for it.

    `tokens` is None where the rule's number is not in the arguments: then no budget is proven.
    """

    tokens: int | None
    rule: str
    next_step: str


def floor_of_tokens(
    arguments: EngineArguments, max_num_seqs: int, served_max_model_len: int | None = None
) -> TokenFloor:
    """The strictest rule on max_num_batched_tokens for an engine with these arguments.

    `served_max_model_len` (tokens) is what /v1/models reported, if known. Where a rule's number is not known,
    the budget that the engine runs with today is proof enough, when it is given in the arguments.
    """
    floors = _floors(arguments, max_num_seqs, served_max_model_len)
    unknown = [floor for floor in floors if floor.tokens is None]
    return unknown[0] if unknown else max(floors, key=lambda floor: floor.tokens or 0)


def _floors(arguments: EngineArguments, max_num_seqs: int, served_max_model_len: int | None) -> list[TokenFloor]:
    floors = [
        TokenFloor(
            max_num_seqs,
            "max_num_batched_tokens must be at least max_num_seqs",
            "Raise the token budget or lower the sequences.",
        )
    ]
    present_tokens = arguments.max_num_batched_tokens
    if not arguments.chunked_prefill:
        floors.append(
            TokenFloor(
                arguments.max_model_len or served_max_model_len or present_tokens,
                "without chunked prefill max_num_batched_tokens must be at least max_model_len",
                "Raise the token budget, lower --max-model-len, or enable chunked prefill.",
            )
        )
    if not arguments.chunked_mm_input:
        floors.append(
            TokenFloor(
                present_tokens,
                "with --disable-chunked-mm-input the budget must hold the largest multimodal item, "
                "whose size is not in the arguments",
                "Keep the token budget at today's value, or remove --disable-chunked-mm-input.",
            )
        )
    if arguments.speculative is not None:
        drafted = arguments.speculative.num_speculative_tokens
        floors.append(
            TokenFloor(
                None if drafted is None else max_num_seqs * (1 + drafted),
                "with speculative decoding max_num_batched_tokens must be at least "
                "max_num_seqs x (1 + num_speculative_tokens)",
                "Raise the token budget, or lower the sequences or num_speculative_tokens (write it out).",
            )
        )
    return floors


def limit_conflict(arguments: EngineArguments, setting: Setting, served_max_model_len: int | None = None) -> str | None:
    """Why vLLM would not start, or not serve, with `setting` and these arguments; None where it would.

    The text ends with the next step. Covers vLLM's own checks at start (the same since 0.6.0, LoRA with
    speculative decoding included) and budgets too small for a step.
    """
    active = arguments.max_num_active_seqs
    if active is not None and active > setting.max_num_seqs:
        return (
            f"max_num_active_seqs ({active}) cannot be greater than max_num_seqs. "
            f"Lower --max-num-active-seqs to {setting.max_num_seqs} or remove it."
        )
    floor = floor_of_tokens(arguments, setting.max_num_seqs, served_max_model_len)
    if floor.tokens is None:
        return f"{floor.rule}. {floor.next_step}"
    if setting.max_num_batched_tokens < floor.tokens:
        return f"{floor.rule} ({floor.tokens}). {floor.next_step}"
    return None


class MetricFamily(StrEnum):
    """The metric families that kneekeeper reads, under the names that vLLM 0.32 exposes them."""

    RUNNING = "vllm:num_requests_running"
    WAITING = "vllm:num_requests_waiting"
    KV_CACHE_USAGE = "vllm:kv_cache_usage_perc"
    CACHE_CONFIG = "vllm:cache_config_info"
    PREEMPTIONS = "vllm:num_preemptions_total"
    PROMPT_TOKENS = "vllm:prompt_tokens_total"
    GENERATION_TOKENS = "vllm:generation_tokens_total"
    PREFIX_CACHE_QUERIES = "vllm:prefix_cache_queries_total"
    PREFIX_CACHE_HITS = "vllm:prefix_cache_hits_total"
    REQUEST_SUCCESS = "vllm:request_success_total"
    TTFT = "vllm:time_to_first_token_seconds"
    ITL = "vllm:inter_token_latency_seconds"
    TPOT = "vllm:request_time_per_output_token_seconds"
    E2E = "vllm:e2e_request_latency_seconds"
    QUEUE_TIME = "vllm:request_queue_time_seconds"
    REQUEST_PROMPT_TOKENS = "vllm:request_prompt_tokens"
    REQUEST_GENERATION_TOKENS = "vllm:request_generation_tokens"


# Ray writes `ray_vllm_…`, KServe's monitoring `kserve_vllm:…`, recording rules often `vllm_…`.
_METRIC_PREFIX = re.compile(r"(?:ray_)?(?:kserve_)?vllm[:_]")


def normalise_metric_name(name: str) -> str:
    """`name` with the prefix that vLLM itself writes, "vllm:"; a name that is not vLLM's stays as it is."""
    return _METRIC_PREFIX.sub("vllm:", name, count=1) if _METRIC_PREFIX.match(name) else name
