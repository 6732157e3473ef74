"""The entry point `vllm.general_plugins: kneekeeper_livetune`.

vLLM calls it in each of its processes; only the one that builds a scheduler opens a channel. Without the token in
the environment it does nothing at all. Nothing that fails here may keep the user's engine from starting.
"""

from __future__ import annotations

import logging
import os
import time
from functools import wraps
from typing import Any

from .channel import EVERY_ADDRESS, Channel
from .limits import Envelope, Governor, Limits
from .messages import DEFAULT_PORT
from .scheduler_hook import envelope_of, hook, version_refusal

_LOG = logging.getLogger("vllm.kneekeeper_livetune")

TOKEN = "KNEEKEEPER_LIVETUNE_TOKEN"
"""The bearer token; without it the plugin does nothing."""
HOST = "KNEEKEEPER_LIVETUNE_HOST"
"""The address to listen on; every one of the pod when left out."""
PORT = "KNEEKEEPER_LIVETUNE_PORT"
APPROVED = "KNEEKEEPER_LIVETUNE_APPROVED"
"""`max_num_seqs,max_num_batched_tokens` that hold whenever no operator is heard: from the start, and after 60
seconds of silence. Left out, the engine's start values do."""


def register() -> None:
    """What vLLM calls, once in each process."""
    if not os.environ.get(TOKEN):
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

    refusal = version_refusal(__version__)
    envelope = refusal or envelope_of(scheduler, base_class, _approved(os.environ.get(APPROVED)))
    place = {"host": os.environ.get(HOST, EVERY_ADDRESS), "port": int(os.environ.get(PORT) or DEFAULT_PORT)}
    access: dict[str, Any] = {"token": os.environ[TOKEN], "engine_version": __version__, **place}
    if isinstance(envelope, Envelope):
        governor = Governor(envelope, time.monotonic)
        hook(scheduler, governor)
        channel = Channel(governor=governor, **access)
        _LOG.info("live tuning is on, port %d: %s", channel.port, envelope.fall_back_to)
    else:
        channel = Channel(unsupported=envelope, **access)
        _LOG.warning("live tuning is off, port %d says so: %s", channel.port, envelope.message)
    scheduler.kneekeeper_livetune = channel  # lives as long as the scheduler


def _approved(text: str | None) -> Limits | None:
    if not text:
        return None
    seqs, tokens = text.split(",")
    return Limits(int(seqs), int(tokens))
