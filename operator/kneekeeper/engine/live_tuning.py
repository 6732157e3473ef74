"""The live-tuning plugin's part in the simulated engine: found and switched on as vLLM does, with the same channel."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points

from kneekeeper.domain.scheduler import Scheduler, SchedulerLimits
from kneekeeper.engine import VLLM_VERSION
from kneekeeper.engine.addresses import default_address
from kneekeeper.livetune import plugin
from kneekeeper.livetune.channel import Channel
from kneekeeper.livetune.deliver import PACKAGE
from kneekeeper.livetune.limits import Envelope, Governor, Limits
from kneekeeper.livetune.messages import DEFAULT_PORT

_LOG = logging.getLogger(__name__)
_GROUP = "vllm.general_plugins"
_ALLOWED = "VLLM_PLUGINS"


def is_switched_on(environment: Mapping[str, str]) -> bool:
    """Whether a real engine would load the plugin and the plugin would act: it lies on the path, VLLM_PLUGINS lets it
    in, and it has a token."""
    allowed = environment.get(_ALLOWED)
    if not environment.get(plugin.TOKEN) or (allowed is not None and PACKAGE not in allowed.split(",")):
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
        started = scheduler.limits
        start = Limits(started.max_num_seqs, started.max_num_batched_tokens)
        self._governor = Governor(Envelope(start, start, least_tokens=_least_tokens(started)), time.monotonic)
        self._channel = Channel(
            token=environment[plugin.TOKEN],
            engine_version=VLLM_VERSION,
            governor=self._governor,
            host=environment.get(plugin.HOST) or default_address(environment),
            port=int(environment.get(plugin.PORT) or DEFAULT_PORT),
        )
        _LOG.info("live tuning is on, port %d: %s", self._channel.port, start)

    def before_step(self) -> None:
        """The step that begins now runs with what is wanted."""
        scheduler = self._scheduler
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


def _least_tokens(limits: SchedulerLimits) -> int:
    return 1 if limits.chunked_prefill else min(limits.max_model_len, limits.max_num_batched_tokens)
