"""Which container of the workload is tuned, what it runs with, and its fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import ContainerWords
from kneekeeper.api.serving_profile import Bounds, Parameters, TargetRef
from kneekeeper.api.tuning_run import SettingBounds
from kneekeeper.domain.arguments import (
    EngineArguments,
    Refusal,
    Rewrite,
    Scheme,
    entrypoint_of_image,
    fingerprint_arguments,
    read_engine_arguments,
    rewrite,
)
from kneekeeper.domain.observation import ContainerView, WorkloadView

# vLLM's defaults of its API server on hardware it knows nothing special of; see notes on defaults by version.
ASSUMED_DEFAULT = Setting(max_num_seqs=256, max_num_batched_tokens=2048)

DEFAULT_LOWEST_SEQUENCES = 8
DEFAULT_HIGHEST_SEQUENCES = 256
DEFAULT_LOWEST_TOKENS = 512
DEFAULT_HIGHEST_TOKENS = 8192


@dataclass(frozen=True)
class Target:
    """The workload's engine as its pod template declares it."""

    workload: WorkloadView
    container: ContainerView
    arguments: EngineArguments
    present: Setting
    fingerprint: str


@dataclass(frozen=True)
class TargetProblem:
    """Why there is nothing to tune; `reason` is a condition's reason, `message` names the next step."""

    reason: str
    message: str


def resolve(workload: WorkloadView, ref: TargetRef, gpu_product: str) -> Target | TargetProblem:
    """Find the vLLM container that `ref` means."""
    if ref.container is not None:
        chosen = next((c for c in workload.containers if c.name == ref.container), None)
        if chosen is None:
            names = ", ".join(c.name for c in workload.containers)
            return TargetProblem(
                "ContainerNotFound",
                f"{workload.kind} {workload.name} has no container {ref.container!r}; it has: {names}. "
                "Correct spec.targetRef.container.",
            )
        readings = [(chosen, _read(chosen))]
    else:
        readings = [(c, _read(c)) for c in workload.containers]
    engines = [(c, r) for c, r in readings if isinstance(r, EngineArguments)]
    if not engines:
        why = "; ".join(f"{c.name}: {r.message}" for c, r in readings if isinstance(r, Refusal))
        return TargetProblem(
            "NoEngineContainer",
            f"No container of {workload.kind} {workload.name} could be read as vLLM: {why}",
        )
    if len(engines) > 1:
        names = ", ".join(c.name for c, _ in engines)
        return TargetProblem(
            "SeveralEngineContainers",
            f"Several containers run vLLM: {names}. Name one in spec.targetRef.container.",
        )
    container, arguments = engines[0]
    if arguments.scheme == Scheme.HTTPS:
        return TargetProblem(
            "HTTPSNotSupported", f"Container {container.name} serves HTTPS; this version cannot probe it."
        )
    present = Setting(
        max_num_seqs=arguments.max_num_seqs or ASSUMED_DEFAULT.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens or ASSUMED_DEFAULT.max_num_batched_tokens,
    )
    return Target(workload, container, arguments, present, fingerprint(container, gpu_product))


def _read(container: ContainerView) -> EngineArguments | Refusal:
    words = container.words
    entrypoint = entrypoint_of_image(container.image)
    return read_engine_arguments(words.command, words.args, container.env, entrypoint=entrypoint)


def words_with(container: ContainerView, setting: Setting) -> ContainerWords | Refusal:
    """The container's words with another setting; a Refusal where they cannot be rewritten safely."""
    result = rewrite(
        container.words.command,
        container.words.args,
        container.env,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
        entrypoint=entrypoint_of_image(container.image),
    )
    if not isinstance(result, Rewrite):
        return result
    return ContainerWords(
        command=None if result.command is None else list(result.command),
        args=None if result.args is None else list(result.args),
    )


def fingerprint(container: ContainerView, gpu_product: str) -> str:
    """A hash of all that a setting depends on; the two limits are left out."""
    parts = [
        container.image,
        gpu_product,
        str(container.gpus),
        fingerprint_arguments(
            container.words.command,
            container.words.args,
            container.env,
            entrypoint=entrypoint_of_image(container.image),
        ),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def bounds_of(parameters: Parameters, present: Setting, arguments: EngineArguments) -> SettingBounds:
    """The search rectangle: the user's bounds, else the design's defaults around the present setting.

    Tokens are never below the longest sequence when chunked prefill is off, nor below the sequences.
    """
    sequences, tokens = parameters.max_num_seqs, parameters.max_num_batched_tokens
    lowest_sequences = _first(sequences.min, min(DEFAULT_LOWEST_SEQUENCES, present.max_num_seqs))
    highest_sequences = max(
        lowest_sequences, _first(sequences.max, max(2 * present.max_num_seqs, DEFAULT_HIGHEST_SEQUENCES))
    )
    lowest_tokens = _first(tokens.min, max(DEFAULT_LOWEST_TOKENS, present.max_num_batched_tokens // 4))
    highest_tokens = _first(tokens.max, max(present.max_num_batched_tokens, DEFAULT_HIGHEST_TOKENS))
    if not arguments.chunked_prefill and arguments.max_model_len is not None:
        lowest_tokens = max(lowest_tokens, arguments.max_model_len)
    lowest_tokens = max(lowest_tokens, lowest_sequences)
    highest_tokens = max(highest_tokens, lowest_tokens)
    return SettingBounds(
        lowest=Setting(max_num_seqs=lowest_sequences, max_num_batched_tokens=lowest_tokens),
        highest=Setting(max_num_seqs=min(highest_sequences, highest_tokens), max_num_batched_tokens=highest_tokens),
    )


def _first(declared: int | None, default: int) -> int:
    return default if declared is None else declared


def bounds_problem(name: str, bounds: Bounds) -> str | None:
    """What is wrong with declared bounds, or None."""
    if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
        return f"spec.parameters.{name}: min {bounds.min} is above max {bounds.max}"
    return None
