from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Fixed, LogNormal
from kneekeeper.api.stage import Limits, PrefixSharing
from kneekeeper.domain.prefixes import Ints, shared_blocks
from kneekeeper.domain.workload import draw_prompt, draw_workload
from tests.unit.test_workload import spec


def hit_share(blocks: Ints, block_tokens: int, prompt_tokens: Ints) -> float:
    """Of a cache that holds all that was sent before."""
    before = np.maximum.accumulate(np.concatenate([[0], blocks[:-1]]))
    return float(block_tokens * np.minimum(blocks, before).sum() / prompt_tokens.sum())


def highest_share(prompt_tokens: Ints, block_tokens: int) -> float:
    """The share of tokens that a prefix cache could serve at most."""
    return float(block_tokens * ((prompt_tokens - 1) // block_tokens).sum() / prompt_tokens.sum())


class BlockCache:
    """A prefix cache without eviction, told by the tokens themselves as vLLM does it."""

    def __init__(self, block_tokens: int) -> None:
        self.block, self.queries, self.hits = block_tokens, 0, 0
        self.known: set[tuple[int, ...]] = set()

    def ask(self, tokens: list[int]) -> None:
        self.queries += len(tokens)
        prefixes = [tuple(tokens[: end * self.block]) for end in range(1, len(tokens) // self.block + 1)]
        hit = 0
        for prefix in prefixes[: (len(tokens) - 1) // self.block]:
            if prefix not in self.known:
                break
            hit += self.block
        self.hits += hit
        self.known.update(prefixes)


@pytest.mark.parametrize("percent", [10, 50, 80])
@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize("lengths", [Fixed(value=800), LogNormal(mean=800, sigma=0.8, maximum=4000)])
def test_a_prefix_cache_serves_the_declared_share_of_the_real_prompts(percent, block, lengths):
    sharing = PrefixSharing(hit_share=percent / 100, block_tokens=block)
    limits = Limits(min_requests=1, max_requests=150, max_duration_s=1)
    workload = draw_workload(spec(prompt_tokens=lengths, prefix=sharing, limits=limits))
    cache = BlockCache(block)
    for index, tokens in enumerate(workload.prompt_tokens.tolist()):
        shared = block * int(workload.shared_blocks[index])
        cache.ask(draw_prompt(1, index, tokens, 10, 250, shared).tolist())
    if percent / 100 <= highest_share(workload.prompt_tokens, block) - 0.05:
        assert cache.hits / cache.queries == pytest.approx(percent / 100, abs=0.01)
    assert cache.hits / cache.queries == pytest.approx(hit_share(workload.shared_blocks, block, workload.prompt_tokens))


def test_without_sharing_no_prompt_hits_another():
    workload = draw_workload(spec())
    cache = BlockCache(16)
    for index, tokens in enumerate(workload.prompt_tokens[:200].tolist()):
        cache.ask(draw_prompt(1, index, tokens, 10, 250).tolist())
    assert cache.hits == 0
    assert workload.shared_blocks.size == 0


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=80),
    st.sampled_from([1, 16, 128]),
    st.floats(0.01, 1.0),
)
def test_no_prompt_shares_more_blocks_than_it_can_hit_and_all_shares_stay_below_the_declared_one(tokens, block, share):
    prompts = np.array(tokens)
    sharing = PrefixSharing(hit_share=share, block_tokens=block)
    blocks = shared_blocks(sharing, prompts)
    assert (blocks >= 0).all()
    assert (blocks * block < prompts).all()
    assert hit_share(blocks, block, prompts) <= share + block / prompts.sum()
