"""vLLM V1's scheduler as compiled code, step by step, over arrays: the same plans as `domain.scheduler`.

A step costs time for what changes in it, not for every running request. Requests that decode are counted, not
visited: all of them get one token a step, so a clock of decode steps says which finish (a ring of buckets over the
clock) and how many need a new KV block (a count for each residue of the clock by the block size). Requests that
compute a prompt are visited. Only where the order of the running requests matters - KV blocks run out, or chunks
that stand before decodes may use the budget up - are they all visited in order. Steps in a row in which nothing but
decoding happens are taken at once, up to the next finish or arrival.

Without `long_prefill_token_threshold` a prompt that is not through is always the last of the running requests: it
was admitted with the rest of a budget, so nothing came after it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from kneekeeper.domain.twin.law import step_duration_s

NONE = -1

# What a run counts, by its place in `counts`.
STEPS = 0
PREFILL_STEPS = 1
PREEMPTIONS = 2
COUNTS = 3

LOG_COLUMNS = 9  # start_s, duration_s, decodes, prefills, prefill_tokens, pairs, kv_tokens, admitted, preempted


class PackedLimits(NamedTuple):
    """The limits as the kernel reads them; 0 stands for no limit where that makes sense."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size_tokens: int
    long_prefill_token_threshold: int
    chunked_prefill: int
    max_num_queued_reqs: int
    max_num_queued_tokens: int
    users: int
    """Of a closed loop; 0 for an open one."""


REQUEST = np.dtype(
    [
        (name, np.float64 if name.endswith("_s") else np.int64)
        for name in (
            "arrival_s",  # written to in a closed loop
            "prompt_tokens",
            "output_tokens",
            "prefix_hit_tokens",
            "ready_s",  # when the API process hands it to the scheduler; negative when it was rejected
            "first_s",
            "last_s",
            "preemptions",
            "decoding",  # 1 while it is counted, not visited
            "computed",  # tokens whose keys and values exist; of a counted request less the clock
            "total",  # prompt and the tokens sampled so far; out of date while it is counted
            "blocks",  # out of date while it is counted
            "before",  # neighbours in the running requests, in order of admission
            "after",
            "bucket_before",  # neighbours among those that finish at the same clock
            "bucket_after",
        )
    ]
)
"""One request, as the caller fills it in and as the kernel leaves it."""

STATE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "clock",  # decode steps so far
            "decodes",  # requests that decode and are not visited
            "decode_tokens",  # tokens whose keys and values those hold
            "free_blocks",
            "running",
            "first",  # of the running requests, in order of admission
            "last",
            "visited",  # running requests in the list of that name
            "returned",  # preempted requests in the list of that name
            "queue_head",  # the part of the queue that was never admitted
            "queue_end",
            "known",  # requests whose arrival time is known
            "received",  # requests that the API process has taken or rejected
            "in_flight",
            "tokens_in_flight",  # prompt tokens of requests without a first token
            "scheduled",  # visited requests that the step computes
        )
    ]
)

LISTS = np.dtype([(name, np.int64) for name in ("visited", "returned", "queue", "scheduled", "chunk")])
"""Indices of requests: a row holds the n-th of each list."""


@njit(nogil=True, cache=True)
def run(requests: Any, states: Any, limits: Any, law: Any, padded: Any, noise: Any, counts: Any, log: Any) -> float:
    """Serve `requests` (of dtype REQUEST) to their end; returns when the last step ended, in seconds.

    Every request must fit the KV cache, and without chunked prefill the token budget. `states` is one zeroed STATE,
    `counts` has COUNTS entries, `log` LOG_COLUMNS columns and a row for each step that is to be recorded.
    """
    count = requests.size
    ring = np.full(np.max(requests["output_tokens"]) + 2, NONE, np.int64)
    boundary = np.zeros(limits.block_size_tokens, np.int64)
    lists = np.zeros(count, LISTS)
    # A record does not keep its array alive, so the caller holds it.
    state = states[0]
    state.first = state.last = NONE
    state.free_blocks = limits.kv_blocks
    state.known = min(limits.users, count) if limits.users > 0 else count
    # Noise and drift give each step a duration of its own.
    smooth = noise.size == 0 and law.drift == 0.0
    delivered = 0
    now_s = api_free_s = 0.0
    while True:
        api_free_s = _receive(now_s, api_free_s, limits, law, requests, state)
        while delivered < state.received and requests[delivered].ready_s <= now_s:
            if requests[delivered].ready_s >= 0.0:
                lists[state.queue_end].queue = delivered
                state.queue_end += 1
            delivered += 1
        if state.running + state.returned + state.queue_end - state.queue_head == 0:
            if delivered < state.received:
                now_s = requests[delivered].ready_s
            elif state.received < state.known:
                now_s = requests[state.received].arrival_s
            else:
                return now_s
            continue
        if smooth and counts[STEPS] >= log.shape[0]:
            now_s, api_free_s, jumped = _jump(
                now_s, api_free_s, delivered, limits, law, padded, noise, requests, state, ring, boundary
            )
            if jumped > 0:
                counts[STEPS] += jumped
                continue
        decodes, prefills, prefill_tokens, pairs, kv_tokens, admitted, preempted = _plan(
            limits, requests, state, lists, ring, boundary
        )
        step = counts[STEPS]
        duration_s = step_duration_s(
            law, padded, noise, step, now_s, decodes, prefills, prefill_tokens, pairs, kv_tokens
        )
        if step < log.shape[0]:
            line = log[step]
            line[0], line[1], line[2], line[3], line[4] = now_s, duration_s, decodes, prefills, prefill_tokens
            line[5], line[6], line[7], line[8] = pairs, kv_tokens, admitted, preempted
        counts[STEPS] += 1
        counts[PREFILL_STEPS] += prefills > 0
        counts[PREEMPTIONS] += preempted
        now_s += duration_s
        api_free_s = _receive(now_s, api_free_s, limits, law, requests, state)
        sampled = state.decodes
        for place in range(state.scheduled):
            request = lists[place].scheduled
            row = requests[request]
            sampled += row.computed + lists[place].chunk == row.total
        if sampled > 0:
            api_free_s = max(api_free_s, now_s) + law.api_step_s + law.api_token_s * sampled
        _complete(api_free_s + law.overhead_s, limits, requests, state, lists, ring, boundary)


@njit(nogil=True, cache=True)
def _receive(until_s: float, api_free_s: float, limits: Any, law: Any, requests: Any, state: Any) -> float:
    """Let the API process take what has arrived; `ready_s` of a request that it rejects is negative."""
    while state.received < state.known and requests[state.received].arrival_s <= until_s:
        request = state.received
        row = requests[request]
        state.received += 1
        full = 0 < limits.max_num_queued_reqs <= state.in_flight
        if full or 0 < limits.max_num_queued_tokens <= state.tokens_in_flight:
            row.ready_s = -1.0
            row.first_s = row.last_s = np.nan
            _arrive_again(row.arrival_s, limits, requests, state)
            continue
        state.in_flight += 1
        state.tokens_in_flight += row.prompt_tokens
        api_free_s = max(api_free_s, row.arrival_s) + law.api_request_s
        api_free_s += law.api_prompt_token_s * row.prompt_tokens
        row.ready_s = api_free_s
    return api_free_s


@njit(nogil=True, cache=True)
def _arrive_again(at_s: float, limits: Any, requests: Any, state: Any) -> None:
    """A user of a closed loop sends the next request; arrival times stay in order."""
    place = state.known
    if limits.users == 0 or place == requests.size:
        return
    while place > state.received and requests[place - 1].arrival_s > at_s:
        requests[place].arrival_s = requests[place - 1].arrival_s
        place -= 1
    requests[place].arrival_s = at_s
    state.known += 1


@njit(nogil=True, cache=True)
def _jump(
    now_s: float,
    api_free_s: float,
    delivered: int,
    limits: Any,
    law: Any,
    padded: Any,
    noise: Any,
    requests: Any,
    state: Any,
    ring: Any,
    boundary: Any,
) -> tuple[float, float, int]:
    """Take the steps before the next event at once, if all that happens in them is decoding.

    Returns the time, when the API process is free, and how many steps were taken, 0 where there is an event. An
    event is a request that finishes, arrives, becomes ready, or a KV cache that may run out. The n-th step is longer
    than the first by (n - 1) times what the tokens of one step add to the KV term.
    """
    decodes = state.decodes
    waiting = state.returned + state.queue_end - state.queue_head
    full = state.running == limits.max_num_seqs
    if decodes == 0 or state.visited > 0 or (waiting > 0 and not full):
        return now_s, api_free_s, 0
    steps = 0
    while ring[(state.clock + steps + 1) % ring.size] == NONE:
        steps += 1
    cycles = state.free_blocks // decodes
    steps = min(steps, (cycles - 1) * limits.block_size_tokens)
    first_s = step_duration_s(law, padded, noise, 0, now_s, decodes, 0, 0, 0.0, state.decode_tokens + decodes)
    growth_s = law.per_kv_token_s * decodes
    api_s = law.api_step_s + law.api_token_s * decodes
    # A full batch takes nobody in, so arrivals matter to the API process alone.
    alone = api_s + law.api_request_s + law.api_prompt_token_s == 0.0
    unlimited = limits.max_num_queued_reqs + limits.max_num_queued_tokens == 0
    event_s = np.inf
    if not (full and alone and unlimited):
        if state.received < state.known:
            event_s = requests[state.received].arrival_s
        if delivered < state.received:
            event_s = min(event_s, requests[delivered].ready_s)
    if event_s - now_s < steps * first_s + growth_s * steps * (steps - 1) / 2:
        steps = int((event_s - now_s) / first_s)
        while steps > 0 and now_s + steps * first_s + growth_s * steps * (steps - 1) / 2 >= event_s:
            steps -= 1 + steps // 16
    if steps < 2 or api_s > first_s:
        return now_s, api_free_s, 0
    now_s += steps * first_s + growth_s * steps * (steps - 1) / 2
    api_free_s = max(api_free_s + steps * api_s, now_s + api_s)
    blocks = steps // limits.block_size_tokens * decodes
    for step in range(steps % limits.block_size_tokens):
        blocks += boundary[(state.clock + step) % limits.block_size_tokens]
    state.free_blocks -= blocks
    state.clock += steps
    state.decode_tokens += steps * decodes
    return now_s, api_free_s, steps


@njit(nogil=True, cache=True)
def _plan(
    limits: Any, requests: Any, state: Any, lists: Any, ring: Any, boundary: Any
) -> tuple[int, int, int, float, int, int, int]:
    """Schedule one step: decodes, prefills, prefill tokens, pairs, KV tokens, admitted, preempted."""
    state.scheduled = 0
    waiting = state.returned + state.queue_end - state.queue_head
    threshold = limits.long_prefill_token_threshold
    if state.running + waiting <= 1:
        threshold = 0
    budget = limits.max_num_batched_tokens - state.decodes
    wanted = 0
    blocks = boundary[state.clock % limits.block_size_tokens]
    for place in range(state.visited):
        request = lists[place].visited
        row = requests[request]
        tokens = _chunk(row.total - row.computed, threshold, budget - wanted)
        wanted += tokens
        blocks += _blocks(row.computed + tokens, limits) - row.blocks
    order_matters = limits.long_prefill_token_threshold > 0 and wanted >= budget
    preempted = 0
    if order_matters or blocks > state.free_blocks:
        budget, preempted = _schedule_in_order(threshold, limits, requests, state, lists, ring, boundary)
    else:
        state.free_blocks -= boundary[state.clock % limits.block_size_tokens]
        for place in range(state.visited):
            request = lists[place].visited
            row = requests[request]
            tokens = _chunk(row.total - row.computed, threshold, budget)
            if tokens > 0:
                _schedule(request, tokens, limits, requests, state, lists)
                budget -= tokens
    admitted = 0 if preempted > 0 else _admit(budget, threshold, limits, requests, state, lists)
    decodes = state.decodes
    prefills = prefill_tokens = 0
    pairs = 0.0
    kv_tokens = state.decode_tokens + decodes
    for place in range(state.scheduled):
        request, tokens = lists[place].scheduled, lists[place].chunk
        row = requests[request]
        computed = row.computed
        kv_tokens += computed + tokens
        if tokens == 1 and computed >= row.prompt_tokens and computed == row.total - 1:
            decodes += 1
        else:
            prefills += 1
            prefill_tokens += tokens
            pairs += tokens * (computed + tokens / 2)
    return decodes, prefills, prefill_tokens, pairs, kv_tokens, admitted, preempted


@njit(nogil=True, cache=True)
def _chunk(tokens: int, threshold: int, budget: int) -> int:
    if 0 < threshold < tokens:
        tokens = threshold
    return max(0, min(tokens, budget))


@njit(nogil=True, cache=True)
def _blocks(tokens: int, limits: Any) -> int:
    return int((tokens + limits.block_size_tokens - 1) // limits.block_size_tokens)


@njit(nogil=True, cache=True)
def _schedule(request: int, tokens: int, limits: Any, requests: Any, state: Any, lists: Any) -> None:
    """Compute `tokens` of a visited request in this step; the blocks must be free."""
    row = requests[request]
    blocks = _blocks(row.computed + tokens, limits)
    state.free_blocks -= blocks - row.blocks
    row.blocks = blocks
    place = state.scheduled
    lists[place].scheduled = request
    lists[place].chunk = tokens
    state.scheduled += 1


@njit(nogil=True, cache=True)
def _schedule_in_order(
    threshold: int, limits: Any, requests: Any, state: Any, lists: Any, ring: Any, boundary: Any
) -> tuple[int, int]:
    """The running requests in order of admission, with preemption; the budget that is left, and the preempted.

    Decoding requests that the step does not reach are visited from now on, until they have got their token.
    """
    budget = limits.max_num_batched_tokens
    preempted = 0
    request = state.first
    while request != NONE and budget > 0:
        row = requests[request]
        if row.decoding == 1:
            computed, tokens = row.computed + state.clock, 1
            held = _blocks(computed, limits)
        else:
            computed, held = row.computed, row.blocks
            tokens = _chunk(row.total - computed, threshold, budget)
        needed = _blocks(computed + tokens, limits) - held
        itself = False
        while needed > state.free_blocks and not itself:
            victim = state.last
            itself = victim == request
            _preempt(victim, limits, requests, state, lists, ring, boundary)
            requests[victim].preemptions += 1
            preempted += 1
        if itself:
            request = NONE
            break
        if row.decoding == 1:
            state.free_blocks -= needed
        else:
            _schedule(request, tokens, limits, requests, state, lists)
        budget -= tokens
        request = row.after
    while request != NONE:
        row = requests[request]
        if row.decoding == 1:
            _leave_decodes(request, limits, requests, state, ring, boundary)
        request = row.after
    state.visited = 0
    request = state.first
    while request != NONE:
        row = requests[request]
        if row.decoding == 0:
            lists[state.visited].visited = request
            state.visited += 1
        request = row.after
    return budget, preempted


@njit(nogil=True, cache=True)
def _admit(budget: int, threshold: int, limits: Any, requests: Any, state: Any, lists: Any) -> int:
    """Take waiting requests while slots, budget and blocks last; preempted ones first. Returns how many."""
    admitted = 0
    while budget > 0 and state.running < limits.max_num_seqs:
        if state.returned > 0:
            request = lists[state.returned - 1].returned
            row = requests[request]
        elif state.queue_head < state.queue_end:
            request = lists[state.queue_head].queue
            row = requests[request]
            row.total = row.prompt_tokens
        else:
            break
        hit = row.prefix_hit_tokens
        tokens = row.total - hit
        if 0 < threshold < tokens:
            tokens = threshold
        if tokens > budget:
            if limits.chunked_prefill == 0:
                break
            tokens = budget
        if _blocks(row.total, limits) > state.free_blocks:
            break
        if state.returned > 0:
            state.returned -= 1
        else:
            state.queue_head += 1
        row.computed = hit
        row.before, row.after = state.last, NONE
        if state.last == NONE:
            state.first = request
        else:
            requests[state.last].after = request
        state.last = request
        state.running += 1
        lists[state.visited].visited = request
        state.visited += 1
        _schedule(request, tokens, limits, requests, state, lists)
        budget -= tokens
        admitted += 1
    return admitted


@njit(nogil=True, cache=True)
def _complete(told_s: float, limits: Any, requests: Any, state: Any, lists: Any, ring: Any, boundary: Any) -> None:
    """Apply the step: tokens are sampled and told at `told_s`, requests finish, blocks are freed."""
    state.clock += 1
    state.decode_tokens += state.decodes
    bucket = state.clock % ring.size
    while ring[bucket] != NONE:
        request = ring[bucket]
        _leave_decodes(request, limits, requests, state, ring, boundary)
        _finish(request, told_s, limits, requests, state)
    for place in range(state.scheduled):
        request = lists[place].scheduled
        row = requests[request]
        row.computed += lists[place].chunk
        if row.computed < row.total:
            continue
        if row.total == row.prompt_tokens:
            row.first_s = told_s
            state.tokens_in_flight -= row.prompt_tokens
        row.total += 1
        if row.total == row.prompt_tokens + row.output_tokens:
            _finish(request, told_s, limits, requests, state)
        else:
            _enter_decodes(request, limits, requests, state, ring, boundary)
    kept = 0
    for place in range(state.visited):
        request = lists[place].visited
        row = requests[request]
        if row.decoding == 0 and row.blocks > 0:
            lists[kept].visited = request
            kept += 1
    state.visited = kept


@njit(nogil=True, cache=True)
def _enter_decodes(request: int, limits: Any, requests: Any, state: Any, ring: Any, boundary: Any) -> None:
    """From now on the request gets one token in each step without being visited."""
    row = requests[request]
    state.decodes += 1
    state.decode_tokens += row.computed
    left = row.prompt_tokens + row.output_tokens - row.total
    row.computed -= state.clock
    row.decoding = 1
    boundary[-row.computed % limits.block_size_tokens] += 1
    bucket = (state.clock + left) % ring.size
    head = ring[bucket]
    ring[bucket] = request
    row.bucket_before, row.bucket_after = NONE, head
    if head != NONE:
        requests[head].bucket_before = request


@njit(nogil=True, cache=True)
def _leave_decodes(request: int, limits: Any, requests: Any, state: Any, ring: Any, boundary: Any) -> None:
    """Back to a request that is visited, with what it has computed and holds."""
    row = requests[request]
    left = row.prompt_tokens + row.output_tokens
    boundary[-row.computed % limits.block_size_tokens] -= 1
    row.computed += state.clock
    row.total = row.computed + 1
    left -= row.total
    row.blocks = _blocks(row.computed, limits)
    row.decoding = 0
    state.decodes -= 1
    state.decode_tokens -= row.computed
    before, after = row.bucket_before, row.bucket_after
    if before == NONE:
        ring[(state.clock + left) % ring.size] = after
    else:
        requests[before].bucket_after = after
    if after != NONE:
        requests[after].bucket_before = before


@njit(nogil=True, cache=True)
def _release(request: int, requests: Any, state: Any) -> None:
    """Take a visited request out of the running ones and free its blocks."""
    row = requests[request]
    state.free_blocks += row.blocks
    row.blocks = 0
    before, after = row.before, row.after
    if before == NONE:
        state.first = after
    else:
        requests[before].after = after
    if after == NONE:
        state.last = before
    else:
        requests[after].before = before
    state.running -= 1


@njit(nogil=True, cache=True)
def _preempt(request: int, limits: Any, requests: Any, state: Any, lists: Any, ring: Any, boundary: Any) -> None:
    """The request loses its blocks and waits at the head of the queue, to be computed anew."""
    row = requests[request]
    if row.decoding == 1:
        _leave_decodes(request, limits, requests, state, ring, boundary)
    _release(request, requests, state)
    lists[state.returned].returned = request
    state.returned += 1


@njit(nogil=True, cache=True)
def _finish(request: int, told_s: float, limits: Any, requests: Any, state: Any) -> None:
    row = requests[request]
    _release(request, requests, state)
    state.in_flight -= 1
    row.last_s = told_s
    _arrive_again(told_s, limits, requests, state)
