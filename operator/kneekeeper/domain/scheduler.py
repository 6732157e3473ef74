"""The continuous-batching scheduler of vLLM's V1 engine, as a step machine without clock and I/O.

Each step spends a token budget: first on the running requests in order of admission (one token for a
decode, a chunk for a prefill that is not through), then on waiting requests, first come, first served.
When KV blocks run out, the request admitted last loses its blocks and waits again at the head of the
queue, to be recomputed; nothing is admitted in such a step.

Modelled on vLLM 0.32: FCFS policy, `--scheduler-reserve-full-isl` at its default (a request is admitted
only when its whole prompt fits the free blocks), watermark 0, one sampled token per step. Prefix caching saves
steps, not blocks. Not modelled: speculative decoding, LoRA, encoder inputs, and the extra step for which asynchronous
scheduling holds a finished request's slot.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kneekeeper.domain.step_plan import StepOutcome, StepPlan


class SchedulerError(ValueError):
    """A call that the scheduler cannot honour. The message says what to change."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What bounds a step. Names and meaning as vLLM's flags.

    Raises SchedulerError when no step could ever make progress under these limits.
    """

    max_num_seqs: int
    """Requests that may run at once."""

    max_num_batched_tokens: int
    """Tokens that one step may compute, over all requests."""

    max_model_len: int
    """Prompt and output tokens of one request."""

    kv_blocks: int
    """Blocks that requests may hold. vLLM's `num_gpu_blocks` counts one more, which it never hands out."""

    block_size_tokens: int = 16
    """Tokens whose keys and values one block holds."""

    chunked_prefill: bool = True
    """Whether a prompt may be spread over steps. Without it a prompt waits until the budget holds it whole."""

    long_prefill_token_threshold: int = 0
    """The largest chunk of one prompt while other requests exist; 0 for no limit."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_blocks", "block_size_tokens"):
            if getattr(self, name) < 1:
                raise SchedulerError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.long_prefill_token_threshold < 0:
            raise SchedulerError("long_prefill_token_threshold must not be negative; 0 switches it off")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of known length."""

    id: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Prompt tokens whose keys and values a prefix cache has; fewer than the prompt's."""


class _Sequence:
    """A request's state in the scheduler."""

    __slots__ = ("alive", "blocks", "capacity", "computed", "id", "last_total", "prompt", "total")

    def __init__(self, request: Request) -> None:
        self.id = request.id
        self.prompt = request.prompt_tokens
        self.total = request.prompt_tokens
        """Prompt and the tokens sampled so far."""
        self.last_total = request.prompt_tokens + request.output_tokens
        self.computed = request.cached_tokens
        """Tokens whose keys and values exist."""
        self.blocks = 0
        self.capacity = 0
        """Tokens that the held blocks have room for."""
        self.alive = True


class Scheduler:
    """Requests in, one plan per step out: `step()` plans, `complete_step()` applies the plan.

    Requests may be added and aborted at any time, also between the two calls of a step.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self._sequences: dict[str, _Sequence] = {}
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._free_blocks = limits.kv_blocks
        self._in_flight: list[tuple[_Sequence, int]] | None = None

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def free_blocks(self) -> int:
        return self._free_blocks

    @property
    def kv_cache_usage(self) -> float:
        """The share of blocks in use, 0 to 1."""
        return 1.0 - self._free_blocks / self.limits.kv_blocks

    @property
    def has_requests(self) -> bool:
        return bool(self._sequences)

    def generated_tokens(self, request_id: str) -> int:
        """Tokens sampled so far for a request that has neither finished nor been aborted."""
        sequence = self._sequences[request_id]
        return sequence.total - sequence.prompt

    def check(self, request: Request) -> None:
        """Whether `add` will take the request, now or later.

        Raises SchedulerError for an id in use, for lengths below 1, and for a request that could never
        finish under the limits.
        """
        limits = self.limits
        length = request.prompt_tokens + request.output_tokens
        if request.id in self._sequences:
            raise SchedulerError(f"request {request.id} exists already; give each request its own id")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise SchedulerError(f"request {request.id} needs at least one prompt and one output token")
        if length > limits.max_model_len:
            raise SchedulerError(
                f"request {request.id} has {length} tokens, more than max_model_len {limits.max_model_len}"
            )
        # The last sampled token is never fed back, so it needs no room.
        if self._blocks_for(length - 1) > limits.kv_blocks:
            raise SchedulerError(
                f"request {request.id} needs {self._blocks_for(length - 1)} KV blocks, "
                f"more than the {limits.kv_blocks} that exist"
            )
        # A preempted request is recomputed whole, its sampled tokens included.
        if not limits.chunked_prefill and length - 1 > limits.max_num_batched_tokens:
            raise SchedulerError(
                f"request {request.id} can need a step of {length - 1} tokens, more than "
                f"max_num_batched_tokens {limits.max_num_batched_tokens}; enable chunked prefill"
            )

    def add(self, request: Request) -> None:
        """Queue a request. Raises SchedulerError as `check` does."""
        self.check(request)
        sequence = _Sequence(request)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks. An unknown or finished id is no error."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return
        sequence.alive = False
        if sequence.blocks:
            self._running.remove(sequence)
            self._release(sequence)
        else:
            self._waiting.remove(sequence)

    def step(self) -> StepPlan:
        """Plan one step; the plan is empty when nothing can be scheduled.

        Raises SchedulerError when the step before is not completed.
        """
        if self._in_flight is not None:
            raise SchedulerError("the last step is not completed; call complete_step() first")
        in_flight: list[tuple[_Sequence, int]] = []
        preempted: list[_Sequence] = []
        budget = self._schedule_running(in_flight, preempted)
        admitted: list[_Sequence] = []
        if not preempted:
            self._schedule_waiting(budget, in_flight, admitted)
        self._in_flight = in_flight
        return _plan(in_flight, admitted, preempted)

    def complete_step(self) -> StepOutcome:
        """Apply the planned step: what was computed is computed, tokens are sampled, blocks are freed.

        Requests aborted since the plan was made are in neither list of the outcome.
        Raises SchedulerError when no step is planned.
        """
        if self._in_flight is None:
            raise SchedulerError("no step is planned; call step() first")
        sampled: list[str] = []
        finished: list[_Sequence] = []
        for sequence, tokens in self._in_flight:
            if not sequence.alive:
                continue
            sequence.computed += tokens
            if sequence.computed == sequence.total:
                sequence.total += 1
                sampled.append(sequence.id)
                if sequence.total == sequence.last_total:
                    finished.append(sequence)
        self._in_flight = None
        for sequence in finished:
            sequence.alive = False
            del self._sequences[sequence.id]
            self._release(sequence)
        if finished:
            self._running = [sequence for sequence in self._running if sequence.alive]
        return StepOutcome(tuple(sampled), tuple(sequence.id for sequence in finished))

    def _schedule_running(self, in_flight: list[tuple[_Sequence, int]], preempted: list[_Sequence]) -> int:
        running = self._running
        budget = self.limits.max_num_batched_tokens
        threshold = self._chunk_threshold()
        index = 0
        while index < len(running) and budget > 0:
            sequence = running[index]
            tokens = sequence.total - sequence.computed
            if 0 < threshold < tokens:
                tokens = threshold
            if tokens > budget:
                tokens = budget
            end = sequence.computed + tokens
            if end > sequence.capacity and not self._make_room(sequence, end, preempted):
                break
            in_flight.append((sequence, tokens))
            budget -= tokens
            index += 1
        return budget

    def _schedule_waiting(self, budget: int, in_flight: list[tuple[_Sequence, int]], admitted: list[_Sequence]) -> None:
        limits = self.limits
        threshold = self._chunk_threshold()
        while self._waiting and budget > 0 and len(self._running) < limits.max_num_seqs:
            sequence = self._waiting[0]
            tokens = sequence.total - sequence.computed
            if 0 < threshold < tokens:
                tokens = threshold
            if tokens > budget:
                if not limits.chunked_prefill:
                    return
                tokens = budget
            if self._blocks_for(sequence.total) > self._free_blocks:
                return
            self._waiting.popleft()
            self._grow(sequence, sequence.computed + tokens)
            self._running.append(sequence)
            admitted.append(sequence)
            in_flight.append((sequence, tokens))
            budget -= tokens

    def _chunk_threshold(self) -> int:
        """vLLM does not limit the chunks of a request that is alone."""
        return self.limits.long_prefill_token_threshold if len(self._sequences) > 1 else 0

    def _make_room(self, sequence: _Sequence, end: int, preempted: list[_Sequence]) -> bool:
        """Blocks for tokens up to `end`, taken from the requests admitted last. False: it was its own victim."""
        while self._blocks_for(end) - sequence.blocks > self._free_blocks:
            victim = self._running.pop()
            self._release(victim)
            victim.computed = 0
            self._waiting.appendleft(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        self._grow(sequence, end)
        return True

    def _grow(self, sequence: _Sequence, end: int) -> None:
        blocks = self._blocks_for(end)
        self._free_blocks -= blocks - sequence.blocks
        sequence.blocks = blocks
        sequence.capacity = blocks * self.limits.block_size_tokens

    def _release(self, sequence: _Sequence) -> None:
        self._free_blocks += sequence.blocks
        sequence.blocks = 0
        sequence.capacity = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size_tokens)


def _plan(in_flight: list[tuple[_Sequence, int]], admitted: list[_Sequence], preempted: list[_Sequence]) -> StepPlan:
    decodes = prefills = prefill_tokens = kv_tokens = 0
    pairs = 0.0
    tokens_of: dict[str, int] = {}
    for sequence, tokens in in_flight:
        tokens_of[sequence.id] = tokens
        kv_tokens += sequence.computed + tokens
        if tokens == 1 and sequence.computed >= sequence.prompt and sequence.computed == sequence.total - 1:
            decodes += 1
        else:
            prefills += 1
            prefill_tokens += tokens
            pairs += tokens * (sequence.computed + tokens / 2)
    return StepPlan(
        tokens=tokens_of,
        decodes=decodes,
        prefills=prefills,
        prefill_tokens=prefill_tokens,
        prefill_token_pairs=pairs,
        kv_tokens=kv_tokens,
        admitted=tuple(sequence.id for sequence in admitted),
        preempted=tuple(sequence.id for sequence in preempted),
    )
