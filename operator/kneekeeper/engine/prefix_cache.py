"""Which prompt blocks the engine still has: whole KV blocks, found by their tokens and all tokens before them.

Of vLLM's cache it has the unit (a block), the rule that a prompt's last token is always computed, the salt of a
request, and eviction of the block that was used longest ago. Blocks count as cached as soon as their request has
arrived, since vLLM caches them when it allocates them. They take no room from running requests here.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Sequence


def block_hashes(tokens: Sequence[int] | bytes, block: int, salt: str) -> tuple[int, ...]:
    """One chained hash for each full block of `tokens` (or of bytes that stand for them)."""
    chain = hash(salt)
    hashes = []
    for end in range(block, len(tokens) + 1, block):
        part = tokens[end - block : end]
        chain = hash((chain, zlib.crc32(part) if isinstance(part, bytes) else tuple(part)))
        hashes.append(chain)
    return tuple(hashes)


class PrefixCache:
    """Remembers up to `capacity_blocks`."""

    def __init__(self, block_tokens: int, capacity_blocks: int) -> None:
        self._block_tokens = block_tokens
        self._capacity_blocks = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def take(self, blocks: Sequence[int], prompt_tokens: int) -> int:
        """The tokens of a prompt that need no computing; all of its blocks are cached from now on."""
        hits = 0
        for block in blocks[: (prompt_tokens - 1) // self._block_tokens]:
            if block not in self._blocks:
                break
            hits += 1
        for block in reversed(blocks):  # the end of a prompt goes first, its beginning may serve others
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)
        return hits * self._block_tokens
