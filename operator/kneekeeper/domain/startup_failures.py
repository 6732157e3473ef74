"""Why an engine did not start, read from the end of its log.

vLLM's wording changes between releases, so each rule looks for the few words that stayed. The first rule that
matches wins: the exact causes come before the general ones that their tracebacks also contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.redaction import redact

MAX_QUOTED_CHARACTERS = 300  # of the log line in a summary


class FailureKind(StrEnum):
    """Causes, as they stand in conditions."""

    NOT_INSTALLED = "NotInstalled"
    SERVICE_PORT_ENV = "ServicePortEnv"
    UNKNOWN_FLAG = "UnknownFlag"
    INVALID_ARGUMENT = "InvalidArgument"
    TOKENS_BELOW_SEQUENCES = "TokensBelowSequences"
    TOKENS_BELOW_MODEL_LENGTH = "TokensBelowModelLength"
    MODEL_LENGTH_TOO_LONG = "ModelLengthTooLong"
    TOKENS_BELOW_MULTIMODAL_ITEM = "TokensBelowMultimodalItem"
    TOKENS_BELOW_DRAFTS = "TokensBelowDrafts"
    ACTIVE_ABOVE_SEQUENCES = "ActiveAboveSequences"
    MAMBA_BLOCKS = "MambaBlocks"
    SAMPLER_WARMUP_OUT_OF_MEMORY = "SamplerWarmupOutOfMemory"
    KV_CACHE_TOO_SMALL = "KvCacheTooSmall"
    DEVICE_MEMORY_IN_USE = "DeviceMemoryInUse"
    OUT_OF_MEMORY = "OutOfMemory"
    MODEL_NOT_FOUND = "ModelNotFound"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class StartupFailure:
    """One failed start.

    `limit_hint` is the largest max_num_seqs that the log says would start, `least_tokens` the smallest
    max_num_batched_tokens; None where it names none.
    `summary` quotes the deciding log line, without secrets; `next_step` is for the user.
    """

    kind: FailureKind
    limit_hint: int | None
    summary: str
    next_step: str
    least_tokens: int | None = None

    @property
    def message(self) -> str:
        """Summary and next step as two sentences."""
        end = "" if self.summary.endswith((".", "!", "?", "…")) else "."
        return f"{self.summary}{end} {self.next_step}"


@dataclass(frozen=True)
class _Rule:
    kind: FailureKind
    pattern: re.Pattern[str]
    next_step: str
    limit_of: Callable[[re.Match[str]], int] | None = None
    tokens_of: Callable[[re.Match[str]], int] | None = None


def _rule(
    kind: FailureKind,
    pattern: str,
    next_step: str,
    limit_of: Callable[[re.Match[str]], int] | None = None,
    tokens_of: Callable[[re.Match[str]], int] | None = None,
) -> _Rule:
    return _Rule(kind, re.compile(pattern), next_step, limit_of, tokens_of)


_LOWER_MEMORY = "Lower max_num_seqs or max_num_batched_tokens, or --gpu-memory-utilization."
_NEXT_STEP_OF_UNKNOWN = "Read the pod's log; start the engine by hand with the same arguments."

_RULES = (
    _rule(
        FailureKind.NOT_INSTALLED,
        r"No module named '?vllm(?:'|\s|$)|Failed to spawn: `vllm`"
        r"|(?<![/\w])[`'\"‘]?vllm[`'\"’]?: (?:No such file or directory|(?:command )?not found)",
        "Install vLLM where the command runs, or write the program with its path.",
    ),
    _rule(
        FailureKind.SERVICE_PORT_ENV,
        r"VLLM_PORT.{0,80}(?:appears to be a URI|must be a valid integer)",
        "A Service named vllm sets VLLM_PORT in every pod of its namespace: set enableServiceLinks: false in the "
        "pod template, or rename the Service.",
    ),
    _rule(
        FailureKind.UNKNOWN_FLAG,
        r"unrecognized arguments: .+|no such option: .+",
        "This vLLM version does not have the argument: remove it, or use another image.",
    ),
    _rule(
        FailureKind.INVALID_ARGUMENT,
        r"error: (?:argument .+: (?:invalid|expected|ignored)|ambiguous option: .+|.+ not allowed with argument).*",
        "Correct the argument that the message names.",
    ),
    _rule(
        FailureKind.TOKENS_BELOW_SEQUENCES,
        r"max_num_batched_tokens \((\d+)\) must be greater than or equal to max_num_seqs \(\d+\)",
        "Raise --max-num-batched-tokens to at least --max-num-seqs.",
        lambda found: int(found.group(1)),
    ),
    _rule(
        FailureKind.TOKENS_BELOW_MODEL_LENGTH,
        r"max_num_batched_tokens \(\d+\) is smaller than max_model_len \((\d+)\)",
        "Raise --max-num-batched-tokens to at least --max-model-len, or enable chunked prefill.",
        tokens_of=lambda found: int(found.group(1)),
    ),
    _rule(
        FailureKind.MODEL_LENGTH_TOO_LONG,
        r"max_model_len \(\d+\) is greater than the derived max_model_len",
        "Lower --max-model-len to what the model's config.json allows.",
    ),
    _rule(
        FailureKind.TOKENS_BELOW_MULTIMODAL_ITEM,
        r"(?i)max_tokens_per_mm_item \((\d+)\) is larger than max_num_batched_tokens",
        "Raise --max-num-batched-tokens to that size, or remove --disable-chunked-mm-input.",
        tokens_of=lambda found: int(found.group(1)),
    ),
    _rule(
        FailureKind.TOKENS_BELOW_DRAFTS,
        r"does not allow any tokens to be scheduled|does not have enough slots to schedule a token"
        r"|Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens",
        "Raise --max-num-batched-tokens to max_num_seqs x (1 + num_speculative_tokens), or draft fewer tokens.",
    ),
    _rule(
        FailureKind.ACTIVE_ABOVE_SEQUENCES,
        r"max_num_active_seqs \(\d+\) cannot be greater than max_num_seqs \(\d+\)",
        "Lower --max-num-active-seqs or remove it.",
    ),
    _rule(
        FailureKind.MAMBA_BLOCKS,
        r"Mamba cache blocks \((\d+)\)",
        "Lower --max-num-seqs to the number of Mamba cache blocks, or raise --gpu-memory-utilization.",
        lambda found: int(found.group(1)),
    ),
    _rule(
        FailureKind.SAMPLER_WARMUP_OUT_OF_MEMORY,
        r"warming up (?:the )?sampler with (\d+)",
        "Lower --max-num-seqs below that number, or --gpu-memory-utilization.",
    ),
    _rule(
        FailureKind.KV_CACHE_TOO_SMALL,
        r"No available memory for the cache blocks|estimated maximum model length is (\d+)"
        r"|larger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV cache)",
        "Lower --max-num-batched-tokens or --max-model-len, or raise --gpu-memory-utilization.",
    ),
    _rule(
        FailureKind.DEVICE_MEMORY_IN_USE,
        r"Free memory on device .{0,120}is less than desired GPU memory utilization"
        r"|Available memory on node \S+ .{0,120}(?:less than|is not enough)",
        "Another process holds the device's memory, or an old pod has not ended yet: wait, or lower "
        "--gpu-memory-utilization.",
    ),
    _rule(
        FailureKind.OUT_OF_MEMORY,
        r"(?i)out of memory|OutOfMemoryError|cannot allocate memory|OOMKilled|DefaultCPUAllocator: can't allocate",
        _LOWER_MEMORY,
    ),
    _rule(
        FailureKind.MODEL_NOT_FOUND,
        r"(?i)is not a local folder and is not a valid model identifier|Repository Not Found"
        r"|does not appear to have a file named|Invalid repository ID or local directory"
        r"|is not a valid model|gated repo|Couldn't connect to '?https://huggingface"
        r"|couldn't find them in the cached files|LocalEntryNotFoundError",
        "Check the model's name, the volume it lies on, and the access to the model hub.",
    ),
)


def next_step_of(kind: FailureKind) -> str:
    """What its owner does about a failure of this kind."""
    return next((rule.next_step for rule in _RULES if rule.kind is kind), _NEXT_STEP_OF_UNKNOWN)


def classify(log_tail: str) -> StartupFailure:
    """The cause of a failed start, from the last lines of the engine's log (standard output and error)."""
    for rule in _RULES:
        found = rule.pattern.search(log_tail)
        if found is not None:
            limit = rule.limit_of(found) if rule.limit_of is not None else None
            tokens = rule.tokens_of(found) if rule.tokens_of is not None else None
            return StartupFailure(rule.kind, limit, _quoted(log_tail, found.start()), rule.next_step, tokens)
    return StartupFailure(
        FailureKind.UNKNOWN,
        None,
        _last_words(log_tail),
        _NEXT_STEP_OF_UNKNOWN,
    )


# What vLLM's logger and Kubernetes write before the message.
_PREFIX = re.compile(
    r"^(?:\([^)]*\) ?)?(?:(?:ERROR|INFO|WARNING|CRITICAL) )?(?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[[^\]]*\] ?)?"
)

_EXCEPTION = re.compile(r"\b\w+(?:Error|Exception)\b: |^Value error, ")
# What vLLM raises because something else failed before.
_CONSEQUENCE = re.compile(r"See root cause above|\d+ validation errors? for ")


def _quoted(log: str, position: int) -> str:
    """The line around `position`."""
    start = log.rfind("\n", 0, position) + 1
    end = log.find("\n", position)
    line = log[start:] if end < 0 else log[start:end]
    return _told(line.strip())


def _last_words(log: str) -> str:
    """The last exception of the log, else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return "The engine ended and its log is empty."
    errors = [line for line in lines if _EXCEPTION.search(line) and not _CONSEQUENCE.search(line)]
    return _told((errors or lines)[-1])


def _told(line: str) -> str:
    """Without the logger's prefix, where the line has more than that; without secrets, shortened."""
    text = redact(_PREFIX.sub("", line) or line)
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[: MAX_QUOTED_CHARACTERS - 1] + "…"
