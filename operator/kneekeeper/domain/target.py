"""Which container of the workload is tuned, what it runs with, and its fingerprint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import LONGEST_WORD_CHARACTERS, MOST_WORDS, ContainerWords
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.serving_profile import Bounds, EndpointSpec, Parameters, Scheme, TargetRef
from kneekeeper.domain.arguments import (
    EngineArguments,
    Refusal,
    Rewrite,
    entrypoint_of_image,
    read_engine_arguments,
    rewrite,
)
from kneekeeper.domain.engine_fingerprint import engine_fingerprint
from kneekeeper.domain.observation import ContainerView, WorkloadView

# vLLM's defaults of its API server on hardware it knows nothing special of; see notes on defaults by version.
ASSUMED_DEFAULT = Setting(max_num_seqs=256, max_num_batched_tokens=2048)

# The most that a status can hold; vLLM is not run beyond it.
MOST_SEQUENCES = 65_536
MOST_TOKENS = 1_048_576
_LONGEST_NAME = 1024
_LONGEST_ROOT_PATH = 253
_IN_A_URL = re.compile("[!-~]*")
"""A path with a line break in it would put words of its own into the head of each request."""

# Less what a rewrite may add: two flags with their values, as words of their own or inside a script.
_MOST_WORDS = MOST_WORDS - 4
_LONGEST_WORD = LONGEST_WORD_CHARACTERS - 128

DEFAULT_LOWEST_SEQUENCES = 8
DEFAULT_HIGHEST_SEQUENCES = 256
DEFAULT_LOWEST_TOKENS = 512
DEFAULT_HIGHEST_TOKENS = 8192


@dataclass(frozen=True)
class Target:
    """The workload's engine as its pod template declares it, and what the template need not tell: GPUs and image."""

    workload: WorkloadView
    container: ContainerView
    arguments: EngineArguments
    present: Setting
    gpu_product: str
    image: str
    """A digest where one is known, else a reference."""

    @cached_property
    def fingerprint(self) -> str:
        """Of the engine; see `engine_fingerprint`."""
        return str(engine_fingerprint(self.container, self.arguments.model, self.image, self.gpu_product))


@dataclass(frozen=True)
class TargetProblem:
    """Why there is nothing to tune; `reason` is a condition's reason, `message` names the next step."""

    reason: str
    message: str


def resolve(
    workload: WorkloadView, ref: TargetRef, gpu_product: str = "", image_digest: str = ""
) -> Target | TargetProblem:
    """Find the vLLM container that `ref` means; without a digest its image is known by its reference."""
    if ref.container is not None:
        chosen = next((c for c in workload.containers if c.name == ref.container), None)
        if chosen is None:
            names = ", ".join(c.name for c in workload.containers)
            return TargetProblem(
                "ContainerNotFound",
                f"{workload.kind} {workload.name} has no container {ref.container!r}; it has: {names}. "
                "Correct spec.targetRef.container.",
            )
        candidates: tuple[ContainerView, ...] = (chosen,)
    else:
        candidates = workload.containers
    readings = [(c, _read(c)) for c in candidates if not _too_long(c)]
    engines = [(c, r) for c, r in readings if isinstance(r, EngineArguments)]
    unread = next((c for c in candidates if _too_long(c)), None)
    if not engines and unread is not None:
        return TargetProblem(
            "ArgumentTooLong",
            f"Command and args of container {unread.name} are not read: they may have {_MOST_WORDS} words of "
            f"{_LONGEST_WORD} characters each. Put what is longer, a chat template or a script, into a file.",
        )
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
    problem = _too_large(container, arguments)
    if problem is not None:
        return problem
    return Target(workload, container, arguments, _declared(arguments), gpu_product, image_digest or container.image)


def scheme_of(endpoint: EndpointSpec, arguments: EngineArguments) -> Scheme:
    """How the engine is spoken to: as the profile declares, since a sidecar may end TLS; else as its words say."""
    return endpoint.scheme or Scheme(arguments.scheme)


def present_setting(container: ContainerView) -> Setting | None:
    """The two limits that the container's words declare, vLLM's defaults included; None where they cannot be read."""
    if _too_long(container):
        return None
    arguments = _read(container)
    if isinstance(arguments, Refusal) or _too_large(container, arguments) is not None:
        return None
    return _declared(arguments)


def _declared(arguments: EngineArguments) -> Setting:
    return Setting(
        max_num_seqs=arguments.max_num_seqs or ASSUMED_DEFAULT.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens or ASSUMED_DEFAULT.max_num_batched_tokens,
    )


def _too_long(container: ContainerView) -> bool:
    """Whether no status could hold the container's words as they are or as a rewrite leaves them."""
    lists = (container.words.command or [], container.words.args or [])
    return any(len(words) > _MOST_WORDS or any(len(word) > _LONGEST_WORD for word in words) for words in lists)


def _too_large(container: ContainerView, arguments: EngineArguments) -> TargetProblem | None:
    """What no status can hold is said once, instead of failing in every tick."""
    for flag, value, most in (
        ("--max-num-seqs", arguments.max_num_seqs, MOST_SEQUENCES),
        ("--max-num-batched-tokens", arguments.max_num_batched_tokens, MOST_TOKENS),
    ):
        if value is not None and value > most:
            return TargetProblem("LimitTooLarge", f"{flag} {value} is above the most that can be tuned, {most}.")
    if not _IN_A_URL.fullmatch(arguments.root_path or ""):
        return TargetProblem("RootPathInvalid", "--root-path has blanks or other characters that no URL has.")
    names = [container.image, arguments.model, *arguments.served_model_names[:1]]
    if any(len(name) > _LONGEST_NAME for name in names) or len(arguments.root_path or "") > _LONGEST_ROOT_PATH:
        return TargetProblem(
            "ArgumentTooLong",
            f"Image and model name may have {_LONGEST_NAME} characters, --root-path {_LONGEST_ROOT_PATH}.",
        )
    return None


def _read(container: ContainerView) -> EngineArguments | Refusal:
    words = container.words
    entrypoint = entrypoint_of_image(container.image)
    return read_engine_arguments(words.command, words.args, container.env, entrypoint=entrypoint, files=container.files)


def words_with(container: ContainerView, setting: Setting) -> ContainerWords | Refusal:
    """The container's words with another setting; a Refusal where they cannot be rewritten safely."""
    result = rewrite(
        container.words.command,
        container.words.args,
        container.env,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
        entrypoint=entrypoint_of_image(container.image),
        files=container.files,
    )
    if not isinstance(result, Rewrite):
        return result
    return ContainerWords(
        command=None if result.command is None else list(result.command),
        args=None if result.args is None else list(result.args),
    )


def bounds_of(
    parameters: Parameters, present: Setting, arguments: EngineArguments, started: Setting | None = None
) -> SettingBounds | TargetProblem:
    """The search rectangle: the user's bounds, else the design's defaults around the present setting; up to what
    production is `started` with, where that is not the present setting.

    Tokens are never below the longest sequence when chunked prefill is off, nor below the sequences. Defaults
    give way to the user's bounds; a TargetProblem where those leave no setting with which the engine works.
    """
    sequences, tokens = parameters.max_num_seqs, parameters.max_num_batched_tokens
    lowest_sequences, highest_sequences = _range(
        sequences,
        min(DEFAULT_LOWEST_SEQUENCES, present.max_num_seqs),
        started.max_num_seqs if started else max(2 * present.max_num_seqs, DEFAULT_HIGHEST_SEQUENCES),
        MOST_SEQUENCES,
    )
    lowest_tokens, highest_tokens = _range(
        tokens,
        max(DEFAULT_LOWEST_TOKENS, present.max_num_batched_tokens // 4),
        started.max_num_batched_tokens if started else max(present.max_num_batched_tokens, DEFAULT_HIGHEST_TOKENS),
        MOST_TOKENS,
    )
    floor = lowest_sequences
    if not arguments.chunked_prefill and arguments.max_model_len is not None:
        floor = min(MOST_TOKENS, max(floor, arguments.max_model_len))
    if tokens.max is not None and tokens.max < floor:
        return TargetProblem(
            "BoundsTooNarrow",
            f"spec.parameters.maxNumBatchedTokens.max {tokens.max} is below {floor}, the least that this engine works "
            "with: the fewest sequences, and without chunked prefill its --max-model-len. Raise it.",
        )
    lowest_tokens, highest_tokens = max(lowest_tokens, floor), max(highest_tokens, floor)
    return SettingBounds(
        lowest=Setting(max_num_seqs=lowest_sequences, max_num_batched_tokens=lowest_tokens),
        highest=Setting(max_num_seqs=min(highest_sequences, highest_tokens), max_num_batched_tokens=highest_tokens),
    )


def _range(declared: Bounds, lowest: int, highest: int, most: int) -> tuple[int, int]:
    """Lowest and highest: what is declared, and defaults only inside it."""
    low = declared.min if declared.min is not None else min(lowest, declared.max or lowest)
    high = declared.max if declared.max is not None else max(highest, low)
    return low, min(high, most)


def bounds_problem(parameters: Parameters) -> str | None:
    """What is wrong with the declared bounds, or None."""
    for name, bounds, most in (
        ("maxNumSeqs", parameters.max_num_seqs, MOST_SEQUENCES),
        ("maxNumBatchedTokens", parameters.max_num_batched_tokens, MOST_TOKENS),
    ):
        if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
            return f"spec.parameters.{name}: min {bounds.min} is above max {bounds.max}"
        if bounds.min is not None and bounds.min > most:
            return f"spec.parameters.{name}: min {bounds.min} is above {most}, the most that can be set"
    return None
