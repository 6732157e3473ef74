"""One run of the twin: requests, limits and a law in, latencies of each request out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kneekeeper.domain.samples import Bools, Floats, Ints
from kneekeeper.domain.twin import kernel
from kneekeeper.domain.twin.law import Law


class TwinError(ValueError):
    """Requests or limits that an engine would refuse. The message says what to change."""


@dataclass(frozen=True)
class TwinLimits:
    """What bounds a step. Names and meaning as vLLM's flags; KV blocks as in `SchedulerLimits`.

    Raises TwinError for limits with which vLLM does not start.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size_tokens: int = 16
    chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    """The largest chunk of one prompt while other requests exist; 0 for no limit."""
    max_num_active_seqs: int | None = None
    """Requests that may run at once, below max_num_seqs (vLLM 0.31 and later)."""
    max_num_queued_reqs: int | None = None
    """Unfinished requests from which on the API process rejects (vLLM 0.30 and later)."""
    max_num_queued_tokens: int | None = None
    """Prompt tokens of requests without a first token from which on it rejects."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size_tokens"):
            if getattr(self, name) < 1:
                raise TwinError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_num_active_seqs", "max_num_queued_reqs", "max_num_queued_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TwinError(f"{name} is {value}; it must be at least 1, or None for no limit")
        if self.max_num_batched_tokens < self.running:
            raise TwinError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be greater than or equal to the "
                f"{self.running} requests that may run"
            )

    @property
    def running(self) -> int:
        """Requests that may run at once."""
        return min(self.max_num_seqs, self.max_num_active_seqs or self.max_num_seqs)

    def packed(self, users: int) -> kernel.PackedLimits:
        """The limits for the kernel, with the users of a closed loop."""
        return kernel.PackedLimits(
            self.running,
            self.max_num_batched_tokens,
            self.kv_blocks,
            self.block_size_tokens,
            self.long_prefill_token_threshold,
            int(self.chunked_prefill),
            self.max_num_queued_reqs or 0,
            self.max_num_queued_tokens or 0,
            users,
        )


@dataclass(frozen=True, eq=False)
class Load:
    """The requests, in the order in which they arrive.

    In a closed loop of `users` only the first `users` arrival times count: each later request follows an answer.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    prefix_hit_tokens: Ints | None = None
    """Prompt tokens that the prefix cache holds: whole blocks, less than the prompt. They are not computed, but
    their blocks are counted as the request's own."""
    users: int = 0
    """0 for an open loop."""

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    def at_rate(self, factor: float) -> Load:
        """The same requests, `factor` times as fast."""
        return replace(self, arrival_s=self.arrival_s / factor)


@dataclass(frozen=True)
class Step:
    """One step of the log; sums as in `StepPlan`."""

    start_s: float
    duration_s: float
    decodes: int
    prefills: int
    prefill_tokens: int
    prefill_token_pairs: float
    kv_tokens: int
    admitted: int
    preempted: int


@dataclass(frozen=True, eq=False)
class TwinResult:
    """One row a request, in the order of arrival; rejected ones have NaN. Times are seconds."""

    arrival_s: Floats
    first_s: Floats
    last_s: Floats
    output_tokens: Ints
    preemptions: Ints
    end_s: float
    """When the last step ended."""
    steps: int
    prefill_steps: int
    log: tuple[Step, ...] = ()
    """The first steps, as many as were asked for."""

    @cached_property
    def rejected(self) -> Bools:
        return np.isnan(self.last_s)

    @cached_property
    def ttft_s(self) -> Floats:
        return self.first_s - self.arrival_s

    @cached_property
    def tpot_s(self) -> Floats:
        """(last - first) / (output tokens - 1); NaN for a single token."""
        later = self.output_tokens - 1
        return np.where(later > 0, (self.last_s - self.first_s) / np.maximum(later, 1), np.nan)

    @cached_property
    def e2e_s(self) -> Floats:
        return self.last_s - self.arrival_s


def simulate(load: Load, limits: TwinLimits, law: Law, *, log_steps: int = 0) -> TwinResult:
    """Serve the load to its end.

    Raises TwinError for a request that could never finish, and for columns of different lengths.
    """
    count = len(load)
    hits = np.zeros(count, dtype=np.int64) if load.prefix_hit_tokens is None else load.prefix_hit_tokens
    _check(load, hits, limits)
    requests = np.zeros(count, dtype=kernel.REQUEST)
    requests["arrival_s"], requests["prefix_hit_tokens"] = load.arrival_s, hits
    requests["prompt_tokens"], requests["output_tokens"] = load.prompt_tokens, load.output_tokens
    counts = np.zeros(kernel.COUNTS, dtype=np.int64)
    log = np.zeros((log_steps, kernel.LOG_COLUMNS), dtype=np.float64)
    end_s = 0.0
    if count:
        noise = np.ascontiguousarray(law.noise, dtype=np.float64)
        states, packed = np.zeros(1, dtype=kernel.STATE), limits.packed(load.users)
        end_s = kernel.run(requests, states, packed, law.packed(), law.padded(), noise, counts, log)
    steps = int(counts[kernel.STEPS])
    return TwinResult(
        arrival_s=requests["arrival_s"].copy(),
        first_s=requests["first_s"].copy(),
        last_s=requests["last_s"].copy(),
        output_tokens=load.output_tokens,
        preemptions=requests["preemptions"].copy(),
        end_s=end_s,
        steps=steps,
        prefill_steps=int(counts[kernel.PREFILL_STEPS]),
        log=tuple(_step(row) for row in log[: min(steps, log_steps)]),
    )


def _step(row: Floats) -> Step:
    start_s, duration_s, decodes, prefills, prefill_tokens, pairs, kv_tokens, admitted, preempted = row.tolist()
    return Step(
        start_s,
        duration_s,
        int(decodes),
        int(prefills),
        int(prefill_tokens),
        pairs,
        int(kv_tokens),
        int(admitted),
        int(preempted),
    )


def _check(load: Load, hits: Ints, limits: TwinLimits) -> None:
    columns = (load.arrival_s, load.prompt_tokens, load.output_tokens, hits)
    if len({column.size for column in columns}) > 1:
        raise TwinError("the columns of the load differ in length; give one row a request")
    if not len(load):
        return
    if load.prompt_tokens.min() < 1 or load.output_tokens.min() < 1:
        raise TwinError("each request needs at least one prompt and one output token")
    if load.users < 0 or np.any(np.diff(load.arrival_s[: load.users or None]) < 0):
        raise TwinError("arrival times must ascend")
    if hits.min() < 0 or np.any(hits >= load.prompt_tokens) or np.any(hits % limits.block_size_tokens):
        raise TwinError("prefix hits are whole blocks and less than the prompt")
    # The last sampled token is never fed back, so it needs no room.
    longest = int((load.prompt_tokens + load.output_tokens).max()) - 1
    if longest > limits.kv_blocks * limits.block_size_tokens:
        raise TwinError(
            f"a request needs {longest} tokens of KV cache, more than the {limits.kv_blocks} blocks of "
            f"{limits.block_size_tokens} hold"
        )
    if not limits.chunked_prefill and longest > limits.max_num_batched_tokens:
        raise TwinError(
            f"a request can need a step of {longest} tokens, more than max_num_batched_tokens "
            f"{limits.max_num_batched_tokens}; enable chunked prefill"
        )
