"""From which release on vLLM knows a flag, and in which it no longer does.

Read in the sources of these releases: 0.6.0, 0.6.6, 0.7.3, 0.8.0, 0.8.5, 0.9.0, 0.9.2, 0.10.0, 0.10.2, 0.11.0,
0.11.2, 0.12.0, 0.13.0, 0.14.0, 0.16.0 to 0.20.0, 0.22.0, 0.24.0, 0.26.0, 0.28.0, 0.30.0 to 0.33.0. What lies
between two of them is not claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kneekeeper.domain.engine_version import EngineVersion


@dataclass(frozen=True)
class Lifetime:
    """A release without the flag before it came, one without it after it went, and what to write instead."""

    not_yet: EngineVersion | None = None
    no_longer: EngineVersion | None = None
    instead: str = "Remove it."


def _version(text: str) -> EngineVersion:
    return EngineVersion.parse(text)


def _came_after(text: str) -> Lifetime:
    return Lifetime(not_yet=_version(text), instead="Remove it, or use a newer vLLM.")


def _gone_in(text: str, instead: str = "Remove it.") -> Lifetime:
    return Lifetime(no_longer=_version(text), instead=instead)


LIFETIMES: Mapping[str, Lifetime] = {
    "--cuda-graph-sizes": Lifetime(_version("0.8.5"), _version("0.13.0"), "Write --cudagraph-capture-sizes."),
    "--disable-log-requests": _gone_in("0.17.0", "Remove it: requests are logged only with --enable-log-requests."),
    "--max-long-partial-prefills": _gone_in("0.28.0"),
    "--max-num-partial-prefills": _gone_in("0.28.0"),
    "--max-seq-len-to-capture": _gone_in("0.32.0"),
    "--num-scheduler-steps": _gone_in("0.10.2"),
    "--preemption-mode": _gone_in("0.32.0"),
    "--scheduler-delay-factor": _gone_in("0.11.0"),
    "--swap-space": _gone_in("0.18.0"),
    "--cudagraph-capture-sizes": _came_after("0.11.0"),
    "--custom-histogram-buckets": _came_after("0.31.0"),
    "--enable-per-request-metrics": _came_after("0.24.0"),
    "--kv-cache-memory-bytes": _came_after("0.10.0"),
    "--max-cudagraph-capture-size": _came_after("0.11.0"),
    "--max-num-active-seqs": _came_after("0.30.0"),
    "--max-num-queued-reqs": _came_after("0.28.0"),
    "--max-num-queued-tokens": _came_after("0.28.0"),
    "--max-num-scheduled-tokens": _came_after("0.24.0"),
    "--scheduler-reserve-full-isl": _came_after("0.17.0"),
    "--shutdown-timeout": _came_after("0.17.0"),
    "--sse-keep-alive-interval": _came_after("0.28.0"),
    "--stream-interval": _came_after("0.11.0"),
    "--watermark": _came_after("0.22.0"),
}

FIRST_WITHOUT_SWITCH_VALUES = _version("0.8.5")
"""`--enable-chunked-prefill=false` was valid before."""

LAST_WITHOUT_SUFFIXES = _version("0.8.0")
"""`--max-num-batched-tokens=8k` is valid after."""
