"""How vLLM's scheduler runs with other limits than its own, and when it must not.

Read in vLLM's sources from 0.9.2 to 0.33 and tried on 0.32. `Scheduler.schedule()` reads the limits afresh in each
step, from attributes of its own:

- `max_num_scheduled_tokens` is the step's token budget. Lowering it is safe at any time: a step asserts only what
  it itself has scheduled.
- `max_num_active_reqs` (0.31 and later) caps admission only. Lowering it is safe: running sequences go on.
- `max_num_running_reqs` before 0.31 caps admission and is asserted at the end of each step, so that lowering it
  below the running sequences kills the engine. Up to 0.24 admission stops at equality, so that it would also lift
  the cap. Hence it never goes below the number of running sequences; none is admitted until enough have ended.

No scheduler class of vLLM is changed but for its `__init__`, and the engine's scheduler gets a `schedule` of its
own that sets the attributes and calls the original.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from .limits import Envelope, Governor, Limits, Refusal

_LOG = logging.getLogger("vllm.kneekeeper_livetune")

FIRST_VERSION = (0, 9, 2)
"""The first that loads general plugins in the engine's process."""
LAST_VERSION = (0, 33)
"""The last whose scheduler was read. A later one may read its limits elsewhere."""

UNSUPPORTED_VERSION = "UnsupportedVersion"
UNSUPPORTED_ENGINE = "UnsupportedEngine"

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def version_refusal(version: str) -> Refusal | None:
    """None for a release whose scheduler is known."""
    found = _RELEASE.match(version)
    release = tuple(int(part) for part in found.groups()) if found else ()
    if release >= FIRST_VERSION and release[:2] <= LAST_VERSION:
        return None
    first, last = (".".join(map(str, v)) for v in (FIRST_VERSION, LAST_VERSION))
    return Refusal(
        UNSUPPORTED_VERSION,
        f"vLLM {version} is not one of {first} to {last}, whose schedulers are known. Restart it for each setting.",
    )


def envelope_of(scheduler: Any, base_class: type, approved: Limits | None) -> Envelope | Refusal:
    """What this scheduler can take; a Refusal where the recipe is not known to hold for it.

    `approved` replaces the start values as what is in force without an operator.
    """
    if type(scheduler).schedule is not base_class.schedule:  # type: ignore[attr-defined]
        return _no(f"its scheduler {type(scheduler).__name__} has its own way to schedule")
    config = scheduler.vllm_config
    ranks = config.parallel_config.data_parallel_size
    if ranks > 1:
        return _no(f"its {ranks} data parallel ranks each have a scheduler, which must change together")
    start = Limits(getattr(scheduler, _sequences_attribute(scheduler)), scheduler.max_num_scheduled_tokens)
    if type(start.max_num_seqs) is not int or type(start.max_num_batched_tokens) is not int:
        return _no(f"its scheduler holds {start!r}")
    speculative = config.speculative_config
    drafted = int(getattr(speculative, "num_speculative_tokens", 0) or 0) if speculative is not None else 0
    least, because = _least_tokens(scheduler, start.max_num_batched_tokens)
    envelope = Envelope(start, approved or start, 1 + drafted, least, because)
    return envelope if approved is None else envelope.refusal(approved) or envelope


def hook(scheduler: Any, governor: Governor) -> None:
    """From now on each step of this scheduler runs with what the governor says."""
    original: Callable[..., Any] = scheduler.schedule
    sequences, tokens = _sequences_attribute(scheduler), "max_num_scheduled_tokens"
    start = governor.envelope.start

    def set_limits() -> None:
        running = len(scheduler.running)
        limits = governor.next_step(running)
        cap = limits.max_num_seqs if sequences == "max_num_active_reqs" else max(limits.max_num_seqs, running)
        setattr(scheduler, sequences, cap)
        setattr(scheduler, tokens, limits.max_num_batched_tokens)

    def schedule(*args: Any, **kwargs: Any) -> Any:
        nonlocal set_limits
        try:
            set_limits()
        except Exception:
            # Users' requests come first: the engine goes on with what it was started with.
            _LOG.exception("live tuning stops: the limits could not be set; the start values are in force")
            setattr(scheduler, sequences, start.max_num_seqs)
            setattr(scheduler, tokens, start.max_num_batched_tokens)
            set_limits = _nothing
        return original(*args, **kwargs)

    scheduler.schedule = schedule


def _nothing() -> None:
    """What a step does once setting the limits has failed."""


def _sequences_attribute(scheduler: Any) -> str:
    return "max_num_active_reqs" if hasattr(scheduler, "max_num_active_reqs") else "max_num_running_reqs"


def _least_tokens(scheduler: Any, start_tokens: int) -> tuple[int, str]:
    """The smallest token budget at which no request waits for ever at the head of the queue."""
    config = scheduler.vllm_config
    scheduling, model = scheduler.scheduler_config, config.model_config
    # The older name is what V1 read up to 0.10.
    chunked = getattr(scheduling, "chunked_prefill_enabled", getattr(scheduling, "enable_chunked_prefill", False))
    if not chunked:
        return min(model.max_model_len, start_tokens), "without chunked prefill a prompt must fit into one step"
    whole_items = scheduling.disable_chunked_mm_input or getattr(model, "is_mm_prefix_lm", False)
    if whole_items and model.is_multimodal_model:
        return start_tokens, "an image must fit into one step, and how large they get is not known"
    if getattr(scheduler, "need_mamba_block_aligned_split", False):
        block = int(config.cache_config.block_size)
        return min(block, start_tokens), "a prefill ends at the blocks of the state cache"
    return 1, "a step needs a token"


def _no(why: str) -> Refusal:
    return Refusal(UNSUPPORTED_ENGINE, f"This engine cannot be tuned live: {why}. Restart it for each setting.")
