"""Whose requests an engine serves: all the load agent's own, or users' among them.

An engine's metrics do not say who asked, but they add up. What has ended since a stage began, what runs and what waits
is never more than the agent has sent by then: a request that is more is a user's. Once all the agent's requests have
ended, both sides are equal, in requests and in tokens.

Families: `request_success_total` (by `finished_reason`, whatever the reason; vLLM does not count aborted ones there),
`num_requests_running`, `num_requests_waiting`, `generation_tokens_total`. Source: vLLM v1/metrics/loggers.py, which
writes all of them in one go after each step.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kneekeeper.api.quantities import counted
from kneekeeper.domain.metric_names import NAME_PREFIX

ENDED = "request_success_total"
RUNNING = "num_requests_running"
WAITING = "num_requests_waiting"
GENERATED = "generation_tokens_total"
FAMILIES = (ENDED, RUNNING, WAITING, GENERATED)

_SERIES = re.compile(rf"^{NAME_PREFIX}(?P<name>{'|'.join(FAMILIES)})(?:\{{(?P<labels>.*)\}})? +(?P<value>\S+)", re.M)
_ABORTED = 'finished_reason="abort"'


@dataclass(frozen=True)
class EngineCount:
    """Requests and tokens of one engine at one moment, summed over its ranks."""

    ended: int
    """Since its start, those that were aborted left out."""
    inside: int
    """Running or waiting."""
    generated_tokens: int
    """Since its start."""


def count_in(exposition: str) -> EngineCount | None:
    """The count in an answer of /metrics; None where one of the families is missing or holds no number."""
    sums: dict[str, float] = {}
    for found in _SERIES.finditer(exposition):
        try:
            value = float(found["value"])
        except ValueError:
            return None
        name = found["name"]
        aborted = name == ENDED and _ABORTED in (found["labels"] or "")
        sums[name] = sums.get(name, 0.0) + (0.0 if aborted else value)
    if len(sums) < len(FAMILIES) or not all(math.isfinite(value) for value in sums.values()):
        return None
    return EngineCount(round(sums[ENDED]), round(sums[RUNNING] + sums[WAITING]), round(sums[GENERATED]))


def began_anew(before: EngineCount, now: EngineCount) -> bool:
    """Whether the engine was started between the two, or is another one."""
    return now.ended < before.ended or now.generated_tokens < before.generated_tokens


def users_requests(before: EngineCount, now: EngineCount, sent: int) -> int:
    """At least so many requests of users have come since `before`, when nobody was served; `sent` are the agent's,
    counted later than `now` was read, so that none of its own is taken for a user's."""
    return max(0, now.ended - before.ended + now.inside - sent)


def unaccounted(before: EngineCount, after: EngineCount, answered: int, failed: int, tokens: int) -> str | None:
    """What of the engine's work in a stage was not the agent's, for people; None where it all was.

    `answered` requests got all their `tokens`; of the `failed` ones, which includes those that were broken off, it is
    not known how far they came.
    """
    ended, generated = after.ended - before.ended, after.generated_tokens - before.generated_tokens
    if not answered <= ended <= answered + failed:
        return (
            f"The engine's counters tell of {counted(ended, 'request')} that ended in the stage; the load agent had "
            f"{answered} answered and {failed} that failed. Others were served meanwhile."
        )
    if failed == 0 and generated != tokens:
        return (
            f"The engine's counters tell of {counted(generated, 'token')} made in the stage; the load agent received "
            f"{tokens}. Others were served meanwhile."
        )
    return None
