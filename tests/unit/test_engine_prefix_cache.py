from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.scheduler import Request, Scheduler, SchedulerLimits
from kneekeeper.engine.prefix_cache import PrefixCache, block_hashes

BLOCK = 4


def take(cache: PrefixCache, tokens: list[int], salt: str = "") -> int:
    return cache.take(block_hashes(tokens, BLOCK, salt), len(tokens))


def test_a_prompt_hits_the_whole_blocks_that_it_shares_from_its_beginning():
    cache = PrefixCache(BLOCK, 100)
    assert take(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert take(cache, [1, 2, 3, 4, 5, 6, 7, 9]) == 4
    assert take(cache, [9, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert take(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8


def test_the_last_token_of_a_prompt_is_always_computed():
    cache = PrefixCache(BLOCK, 100)
    take(cache, [1, 2, 3, 4])
    assert take(cache, [1, 2, 3, 4]) == 0
    assert take(cache, [1, 2, 3, 4, 5]) == 4


def test_another_salt_shares_nothing():
    cache = PrefixCache(BLOCK, 100)
    take(cache, [1, 2, 3, 4, 5], "a")
    assert take(cache, [1, 2, 3, 4, 5], "b") == 0
    assert take(cache, [1, 2, 3, 4, 5], "a") == 4


def test_the_block_that_was_used_longest_ago_makes_room():
    cache = PrefixCache(BLOCK, 2)
    take(cache, [1, 1, 1, 1, 0])
    take(cache, [2, 2, 2, 2, 0])
    take(cache, [1, 1, 1, 1, 0])
    take(cache, [3, 3, 3, 3, 0])
    assert take(cache, [1, 1, 1, 1, 0]) == 4
    assert take(cache, [2, 2, 2, 2, 0]) == 0


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), max_size=20))
def test_hits_are_whole_blocks_of_the_longest_prefix_that_was_seen(prompts):
    cache = PrefixCache(BLOCK, 1000)
    for number, prompt in enumerate(prompts):
        shared = [
            sum(1 for end in range(BLOCK, len(prompt), BLOCK) if earlier[:end] == prompt[:end] and len(earlier) >= end)
            for earlier in prompts[:number]
        ]
        assert take(cache, prompt) == BLOCK * max(shared, default=0)


def test_cached_tokens_are_not_computed_again():
    scheduler = Scheduler(SchedulerLimits(4, 100, 1000, kv_blocks=100))
    scheduler.add(Request("a", prompt_tokens=90, output_tokens=2, cached_tokens=64))
    plan = scheduler.step()
    assert plan.tokens == {"a": 26}
    assert plan.prefills == 1
    assert scheduler.complete_step().sampled == ("a",)
    assert scheduler.step().decodes == 1
