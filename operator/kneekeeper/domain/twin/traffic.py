"""The workload as the twin sees it: lengths, arrivals, kinds of requests, shared prefixes, and the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import FromTrace, Lengths, Open
from kneekeeper.api.stage import PrefixSharing, StageClass
from kneekeeper.domain.arrivals import draw_arrivals
from kneekeeper.domain.lengths import cut, longest_tokens
from kneekeeper.domain.prefixes import shared_blocks
from kneekeeper.domain.samples import Floats, Ints
from kneekeeper.domain.twin.simulate import TwinLimits
from kneekeeper.domain.workload import Stream, draw_lengths, generator

BLOCK_SIZE_TOKENS = 16
_AMPLE_KV_TOKENS = 2**40
"""Where nothing is known of the KV cache, it does not bind."""


@dataclass(frozen=True)
class TwinTraffic:
    """What is asked of the engine, and what its KV cache holds; None where that is not known."""

    prompt_tokens: Lengths
    output_tokens: Lengths
    burstiness: float | None = 1.0
    """Shape of the Gamma gaps of an open loop; None for constant gaps."""
    kv_cache_tokens: int | None = None
    classes: tuple[StageClass, ...] = ()
    """A mix of kinds of requests, each with its own lengths and targets, instead of one."""
    prefix: PrefixSharing | None = None
    most_running: int | None = None
    """Sequences that the engine runs at a time whatever max_num_seqs says; None where none is known."""
    caches: tuple[tuple[int, int], ...] = ()
    """Ascending token budgets of engines that were started, each with what its KV cache held: a larger budget leaves
    less memory to the cache, in proportion, since activations are as many as the tokens of a step."""

    @property
    def block_size_tokens(self) -> int:
        return self.prefix.block_tokens if self.prefix is not None else BLOCK_SIZE_TOKENS

    @property
    def longest_request_tokens(self) -> int:
        """Prompt and output of the longest request."""
        pairs = [(kind.prompt_tokens, kind.output_tokens) for kind in self.classes]
        pairs = pairs or [(self.prompt_tokens, self.output_tokens)]
        return max(longest_tokens(prompt) + longest_tokens(output) for prompt, output in pairs)

    def limits(self, setting: Setting) -> TwinLimits:
        """The limits of an engine that was started with this setting. Its cache holds at least one request."""
        tokens = max(self.cache_tokens(setting.max_num_batched_tokens) or _AMPLE_KV_TOKENS, self.longest_request_tokens)
        return TwinLimits(
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=max(setting.max_num_batched_tokens, setting.max_num_seqs),
            kv_blocks=-(-tokens // self.block_size_tokens),
            block_size_tokens=self.block_size_tokens,
            max_num_active_seqs=self.most_running,
        )

    def cache_tokens(self, max_num_batched_tokens: int) -> int | None:
        """What the KV cache holds under this budget: between budgets that were seen in proportion, beyond them no more
        than was seen."""
        if self.kv_cache_tokens is None or not self.caches:
            return self.kv_cache_tokens
        budgets, tokens = zip(*self.caches, strict=True)
        return int(np.interp(max_num_batched_tokens, budgets, tokens))

    def draw(self, count: int, seed: int) -> TwinRequests:
        """`count` requests, the same for the same seed."""
        kinds = [(kind.prompt_tokens, kind.output_tokens) for kind in self.classes]
        kinds = kinds or [(self.prompt_tokens, self.output_tokens)]
        weights = np.array([kind.weight for kind in self.classes] or [1], dtype=np.float64)
        kind_of = generator(seed, Stream.CLASSES).choice(weights.size, size=count, p=weights / weights.sum())
        prompts, outputs = (
            np.choose(
                kind_of,
                [
                    draw_lengths(_known(pair[column]), count, generator(seed, stream, part))
                    for part, pair in enumerate(kinds)
                ],
            )
            for column, stream in enumerate((Stream.PROMPT_LENGTHS, Stream.OUTPUT_LENGTHS))
        )
        times = draw_arrivals(Open(rate=1.0, burstiness=self.burstiness), count, generator(seed, Stream.ARRIVALS))
        return TwinRequests(times, prompts.astype(np.int64), outputs.astype(np.int64), kind_of.astype(np.int64))

    def prefix_hits(self, prompt_tokens: Ints) -> Ints | None:
        """Prompt tokens that the prefix cache serves, in whole blocks."""
        if self.prefix is None:
            return None
        return np.asarray(shared_blocks(self.prefix, prompt_tokens) * self.prefix.block_tokens, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TwinRequests:
    """Requests in the order of their arrival, one a second on average."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    kind: Ints
    """Index into the classes; 0 without a mix."""


def _known(lengths: Lengths) -> Lengths:
    """Of a trace, which the twin does not have: what the trace holds as a whole."""
    return cut(lengths.marginal, lengths.maximum) if isinstance(lengths, FromTrace) else lengths
