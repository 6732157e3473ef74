"""The variables by which an engine's environment switches the plugin on; the package is pure but for its users."""

from __future__ import annotations

from collections.abc import Mapping

from .limits import Limits, Refusal

TOKEN = "KNEEKEEPER_LIVETUNE_TOKEN"
"""The bearer token by which limits are changed through the channel; of clones."""
FILE = "KNEEKEEPER_LIVETUNE_FILE"
"""The file that limits are read from, in production; then nothing is changed through the channel."""
STARTED = "KNEEKEEPER_LIVETUNE_STARTED"
"""`max_num_seqs,max_num_batched_tokens` that the engine has to be started with for the file to count: whoever
starts it with other values wants those."""
HOST = "KNEEKEEPER_LIVETUNE_HOST"
"""The address to listen on; every one of the pod when left out."""
PORT = "KNEEKEEPER_LIVETUNE_PORT"
APPROVED = "KNEEKEEPER_LIVETUNE_APPROVED"
"""`max_num_seqs,max_num_batched_tokens` that hold from the start, until the file says others; in a clone whenever no
operator was heard for 60 seconds. Left out, the engine's start values do."""

STARTED_OTHERWISE = "StartedOtherwise"


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the plugin is to do anything at all."""
    return bool(environment.get(TOKEN) or environment.get(FILE))


def token_in(environment: Mapping[str, str]) -> str | None:
    """The channel's; None where limits come from a file and the channel only tells. Raises KeyError without either."""
    return None if environment.get(FILE) else environment[TOKEN]


def limits_in(environment: Mapping[str, str], name: str) -> Limits | None:
    """What a variable holds; None without it. Raises ValueError for another text."""
    text = environment.get(name)
    if not text:
        return None
    seqs, tokens = text.split(",")
    return Limits(int(seqs), int(tokens))


def limits_text(max_num_seqs: int, max_num_batched_tokens: int) -> str:
    """As `limits_in` reads it."""
    return f"{max_num_seqs},{max_num_batched_tokens}"


def start_refusal(environment: Mapping[str, str], started: Limits) -> Refusal | None:
    """Why the file does not count for an engine that was started with these values."""
    meant = limits_in(environment, STARTED)
    if not environment.get(FILE) or meant is None or meant == started:
        return None
    return Refusal(
        STARTED_OTHERWISE,
        f"This engine was started with {started} and not with {meant}: its own values hold.",
    )
