"""What an engine's arguments say, as far as kneekeeper has to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_PORT = 8000


class Scheme(StrEnum):
    """How the engine's port is spoken to."""

    HTTP = "http"
    HTTPS = "https"


@dataclass(frozen=True)
class SpeculativeDecoding:
    """Draft tokens are proposed and checked in one step.

    `num_speculative_tokens` is None where the method or the draft model decides it.
    """

    method: str | None
    num_speculative_tokens: int | None


@dataclass(frozen=True)
class EngineArguments:
    """The arguments of one vLLM API server. A limit that is None is vLLM's default.

    Holds no secret: of API keys only that there are some.
    """

    model: str
    served_model_names: tuple[str, ...]  # never empty: without the flag it is the model
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_num_active_seqs: int | None  # caps the running sequences below max_num_seqs (vLLM 0.31 and later)
    max_num_scheduled_tokens: int | None  # caps a step below max_num_batched_tokens (vLLM 0.26 and later)
    max_model_len: int | None  # tokens; None: from the model's own configuration
    port: int
    host: str | None  # None: not given, or a variable that is not known, such as the pod's address
    root_path: str
    scheme: Scheme
    api_key_required: bool
    chunked_prefill: bool  # on unless switched off, as in every V1 engine
    chunked_mm_input: bool  # off: the token budget must hold the largest multimodal item
    speculative: SpeculativeDecoding | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    lora_enabled: bool
    kv_role: str | None  # kv_producer, kv_consumer or kv_both where prefill and decode are split
    log_stats: bool  # off: /metrics has no vllm: series
    stream_interval: int  # tokens per streamed chunk after the first
    unknown_flags: tuple[str, ...]  # of a newer vLLM or a plugin; kept as they stand
    given_flags: tuple[str, ...] = ()  # full names, without values
    switches_with_value: tuple[str, ...] = ()  # --enable-chunked-prefill=false, as older versions had it


@dataclass(frozen=True)
class WrittenLimits:
    """The texts of the two limits as they are written; None where the flag is not given.

    The command line beats the config file, whatever their order.
    """

    max_num_seqs: str | None
    max_num_batched_tokens: str | None
    file_max_num_seqs: str | None = None
    file_max_num_batched_tokens: str | None = None
    config_path: str | None = field(default=None, compare=False)  # of the config file, where one is named
