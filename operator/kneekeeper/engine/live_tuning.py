"""The live-tuning plugin's part in the simulated engine: found and switched on as vLLM does, with the same channel."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points

from kneekeeper.domain.scheduler import Scheduler, SchedulerLimits
from kneekeeper.engine import VLLM_VERSION
from kneekeeper.engine.addresses import default_address
from kneekeeper.livetune.channel import Channel
from kneekeeper.livetune.deliver import PACKAGE
from kneekeeper.livetune.environment import (
    APPROVED,
    HOST,
    PORT,
    is_wanted,
    limits_in,
    start_refusal,
    token_in,
)
from kneekeeper.livetune.limits import Envelope, Governor, Limits, Refusal
from kneekeeper.livetune.limits_file import follow_file, governor_of
from kneekeeper.livetune.messages import DEFAULT_PORT

_LOG = logging.getLogger(__name__)
_GROUP = "vllm.general_plugins"
_ALLOWED = "VLLM_PLUGINS"


def is_switched_on(environment: Mapping[str, str]) -> bool:
    """Whether a real engine would load the plugin and the plugin would act: it lies on the path, VLLM_PLUGINS lets it
    in, and it has a token or a file."""
    allowed = environment.get(_ALLOWED)
    if not is_wanted(environment) or (allowed is not None and PACKAGE not in allowed.split(",")):
        return False
    return any(found.name == PACKAGE for found in entry_points(group=_GROUP))


def live_tuning_of(scheduler: Scheduler, environment: Mapping[str, str]) -> LiveTuning | None:
    """None where it is not switched on, or its port is taken: nothing about it keeps an engine from starting."""
    if not is_switched_on(environment):
        return None
    try:
        return LiveTuning(scheduler, environment)
    except (OSError, ValueError) as error:
        _LOG.error("live tuning is off: the channel did not open: %s", error)
        return None


class LiveTuning:
    """The channel of one simulated engine; `before_step` is to be called by the core before each step."""

    def __init__(self, scheduler: Scheduler, environment: Mapping[str, str]) -> None:
        """Raises OSError when the port is taken, ValueError when it is no number."""
        self._scheduler = scheduler
        envelope = _envelope(scheduler.limits, environment)
        self._governor: Governor | None = None
        if isinstance(envelope, Envelope):
            self._governor = governor_of(envelope, environment)
            follow_file(self._governor, environment)
        self._channel = Channel(
            token=token_in(environment),
            engine_version=VLLM_VERSION,
            governor=self._governor,
            unsupported=None if isinstance(envelope, Envelope) else envelope,
            host=environment.get(HOST) or default_address(environment),
            port=int(environment.get(PORT) or DEFAULT_PORT),
        )
        told = envelope.fall_back_to if isinstance(envelope, Envelope) else envelope.message
        _LOG.info("live tuning answers at port %d: %s", self._channel.port, told)

    def before_step(self) -> None:
        """The step that begins now runs with what is wanted."""
        scheduler = self._scheduler
        if self._governor is None:
            return
        wanted, present = self._governor.next_step(scheduler.num_running), scheduler.limits
        if (wanted.max_num_seqs, wanted.max_num_batched_tokens) != (
            present.max_num_seqs,
            present.max_num_batched_tokens,
        ):
            scheduler.limits = replace(
                present, max_num_seqs=wanted.max_num_seqs, max_num_batched_tokens=wanted.max_num_batched_tokens
            )

    def close(self) -> None:
        """Answer nothing more."""
        self._channel.close()


def _envelope(started: SchedulerLimits, environment: Mapping[str, str]) -> Envelope | Refusal:
    start = Limits(started.max_num_seqs, started.max_num_batched_tokens)
    refusal = start_refusal(environment, start)
    if refusal is not None:
        return refusal
    approved = limits_in(environment, APPROVED)
    envelope = Envelope(start, approved or start, least_tokens=_least_tokens(started))
    return envelope if approved is None else envelope.refusal(approved) or envelope


def _least_tokens(limits: SchedulerLimits) -> int:
    return 1 if limits.chunked_prefill else min(limits.max_model_len, limits.max_num_batched_tokens)
