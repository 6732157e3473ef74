"""The entry point `vllm.general_plugins: kneekeeper_livetune`.

vLLM calls it in each of its processes; only the one that builds a scheduler opens a channel. Without its
variables in the environment it does nothing at all. Nothing that fails here may keep the user's engine from starting.
"""

from __future__ import annotations

import logging
import os
from functools import wraps
from typing import Any

from .channel import EVERY_ADDRESS, Channel
from .environment import APPROVED, HOST, PORT, is_wanted, limits_in, start_refusal, token_in
from .limits import Envelope, Limits, Refusal
from .limits_file import follow_file, governor_of
from .messages import DEFAULT_PORT
from .scheduler_hook import envelope_of, hook, version_refusal

_LOG = logging.getLogger("vllm.kneekeeper_livetune")


def register() -> None:
    """What vLLM calls, once in each process."""
    if not is_wanted(os.environ):
        return
    try:
        _wrap_scheduler()
    except Exception:
        _LOG.exception("live tuning is off: vLLM's scheduler is not where it was")


def _wrap_scheduler() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            _open_channel(self, Scheduler)
        except Exception:
            _LOG.exception("live tuning is off: the channel did not open")

    Scheduler.__init__ = init


def _open_channel(scheduler: Any, base_class: type) -> None:
    from vllm import __version__

    envelope = version_refusal(__version__) or _envelope(scheduler, base_class)
    place = {"host": os.environ.get(HOST, EVERY_ADDRESS), "port": int(os.environ.get(PORT) or DEFAULT_PORT)}
    access: dict[str, Any] = {"token": token_in(os.environ), "engine_version": __version__, **place}
    if isinstance(envelope, Envelope):
        governor = governor_of(envelope, os.environ)
        hook(scheduler, governor)
        follow_file(governor, os.environ)
        channel = Channel(governor=governor, **access)
        _LOG.info("live tuning is on, port %d: %s", channel.port, envelope.fall_back_to)
    else:
        channel = Channel(unsupported=envelope, **access)
        _LOG.warning("live tuning is off, port %d says so: %s", channel.port, envelope.message)
    scheduler.kneekeeper_livetune = channel  # lives as long as the scheduler


def _envelope(scheduler: Any, base_class: type) -> Envelope | Refusal:
    config = scheduler.scheduler_config
    started = Limits(config.max_num_seqs, config.max_num_batched_tokens)
    refusal = start_refusal(os.environ, started)
    return refusal or envelope_of(scheduler, base_class, limits_in(os.environ, APPROVED))
