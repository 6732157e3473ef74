"""Prompts that share prefixes, so that an engine's prefix cache serves a declared share of their tokens.

vLLM caches whole KV blocks and finds them by the tokens of a block and all blocks before it; the last token of
a prompt is always computed. So a prompt of p tokens can hit at most ⌊(p - 1) / block⌋ blocks. All prompts of a
stage begin with blocks of one token stream of the stage's own, each with as many as bring the hits of all
prompts so far closest to the declared share: what the first prompts could not hit, because nobody had sent
those blocks before, is made up for by later ones. The blocks of the stream stay in the cache because nearly
every prompt uses them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.stage import PrefixSharing

Ints = NDArray[np.int64]


def shared_blocks(sharing: PrefixSharing, prompt_tokens: Ints) -> Ints:
    """How many blocks of the shared stream each prompt begins with, in the order in which they are sent."""
    block, share = sharing.block_tokens, sharing.hit_share
    blocks = np.zeros(prompt_tokens.size, dtype=np.int64)
    owed_tokens = 0.0
    cached = 0
    for index, tokens in enumerate(prompt_tokens.tolist()):
        owed_tokens += share * tokens
        most = (tokens - 1) // block
        wanted = max(0, min(most, int(owed_tokens / block + 0.5)))
        blocks[index] = wanted
        owed_tokens -= block * min(wanted, cached)
        cached = max(cached, wanted)
    return blocks
