"""What a server's own counters say against what the client measured. Either is wrong, or somebody else is there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from kneekeeper.domain.load_level import Delivered

EARLY_SLACK_S = 0.001
EARLY_SLACK_SHARE = 0.02
"""A client cannot see a first token before the server does; its clock and the server's are read a little apart."""

OUTSIDE_SLACK_S = 0.020
OUTSIDE_SLACK_SHARE = 0.2
"""What HTTP, the network and the API process may add to the engine's TTFT before it is told."""

MOST_UNASKED_HITS = 0.03
"""Share of prompt tokens; random prompts share at most a first token or two."""


@dataclass(frozen=True)
class ServerTotals:
    """Counters of a server since its start; None where it has no such counter."""

    requests: float | None  # that ended by themselves, not aborted ones
    prompt_tokens: float | None
    generation_tokens: float | None
    ttft_sum_s: float | None
    ttft_count: float | None
    prefix_queries: float | None  # tokens
    prefix_hits: float | None  # tokens

    def since(self, before: ServerTotals) -> ServerTotals:
        """What was added since `before`; None also where a counter went back, since the server restarted."""
        return ServerTotals(**{f.name: _added(getattr(before, f.name), getattr(self, f.name)) for f in fields(self)})


class ContradictionKind(StrEnum):
    REQUESTS = "Requests"
    PROMPT_TOKENS = "PromptTokens"
    OUTPUT_TOKENS = "OutputTokens"
    TTFT_EARLY = "TTFTEarly"
    TTFT_OUTSIDE = "TTFTOutside"
    PREFIX_HITS = "PrefixHits"


@dataclass(frozen=True)
class Contradiction:
    """Client and server disagree in one number; `message` says what it means and what to do."""

    level: str
    kind: ContradictionKind
    client: float
    server: float
    message: str


def contradictions(level: str, client: Delivered, server: ServerTotals) -> tuple[Contradiction, ...]:
    """All disagreements of one level. `server` is what its counters gained meanwhile.

    Counts are compared where every request succeeded: of others it is not known what the server counted.
    """
    found: list[Contradiction] = []

    def tell(kind: ContradictionKind, ours: float, theirs: float, message: str) -> None:
        found.append(Contradiction(level, kind, ours, theirs, message))

    for kind, what, ours, theirs in (
        (ContradictionKind.REQUESTS, "requests", client.succeeded, server.requests),
        (ContradictionKind.PROMPT_TOKENS, "prompt tokens", client.prompt_tokens, server.prompt_tokens),
        (ContradictionKind.OUTPUT_TOKENS, "output tokens", client.output_tokens, server.generation_tokens),
    ):
        if theirs is None or client.not_succeeded or theirs == ours:
            continue
        meaning = (
            "Somebody else uses the server; measure when it is alone."
            if theirs > ours
            else "Answers come from elsewhere: a cache or a balancer with other servers stands before it."
        )
        tell(kind, ours, theirs, f"The server counts {theirs:.0f} {what}, the client {ours}. {meaning}")
    found.extend(_ttft(level, client, server))
    hits = _share(server.prefix_hits, server.prefix_queries)
    if hits is not None and hits > MOST_UNASKED_HITS:
        tell(
            ContradictionKind.PREFIX_HITS,
            0.0,
            hits,
            f"The prefix cache served {hits:.0%} of the prompt tokens although none should repeat. "
            "Restart the server, or measure when it is alone.",
        )
    return tuple(found)


def _ttft(level: str, client: Delivered, server: ServerTotals) -> list[Contradiction]:
    ours, theirs = client.ttft_mean_s, _share(server.ttft_sum_s, server.ttft_count)
    if ours is None or theirs is None or client.not_succeeded:
        return []
    told = f"Mean TTFT: the server says {1e3 * theirs:.1f} ms, the client {1e3 * ours:.1f} ms."
    if ours < theirs - max(EARLY_SLACK_S, EARLY_SLACK_SHARE * theirs):
        kind, meaning = ContradictionKind.TTFT_EARLY, "What comes first is no token: something answers for the server."
    elif ours > theirs + max(OUTSIDE_SLACK_S, OUTSIDE_SLACK_SHARE * theirs):
        kind, meaning = (
            ContradictionKind.TTFT_OUTSIDE,
            "The difference passes outside of the engine: in its API process, the network, or a proxy that buffers.",
        )
    else:
        return []
    return [Contradiction(level, kind, ours, theirs, f"{told} {meaning}")]


def _added(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
