"""Which values of the two limits an engine may run with, and which are due now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

HEARTBEAT_TIMEOUT_S = 60.0
"""An engine whose operator was silent for this long goes back to the values that somebody answers for."""


@dataclass(frozen=True)
class Limits:
    """Values of --max-num-seqs and --max-num-batched-tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int

    def __str__(self) -> str:
        return f"max_num_seqs {self.max_num_seqs}, max_num_batched_tokens {self.max_num_batched_tokens}"


@dataclass(frozen=True)
class Refusal:
    """Why values are not taken: a constant for programs, a sentence with the next step for people."""

    reason: str
    message: str


ABOVE_START = "AboveStart"
BELOW_ONE = "BelowOne"
TOKENS_BELOW_SEQUENCES = "TokensBelowSequences"
TOKENS_BELOW_LEAST = "TokensBelowLeast"


@dataclass(frozen=True)
class Envelope:
    """What one running engine can take.

    `start` is what it was started with: its buffers, CUDA graphs and memory profile hold no more. `fall_back_to`
    is in force without an operator. `tokens_per_sequence` is what one decoding sequence takes of a step (1, or
    1 + the speculative tokens). `least_tokens` is the smallest token budget with which any prompt makes progress,
    and `least_tokens_because` says why.
    """

    start: Limits
    fall_back_to: Limits
    tokens_per_sequence: int = 1
    least_tokens: int = 1
    least_tokens_because: str = "a step needs a token"

    def refusal(self, limits: Limits) -> Refusal | None:
        """None when the engine can run with these values."""
        start = self.start
        if limits.max_num_seqs < 1 or limits.max_num_batched_tokens < 1:
            return Refusal(BELOW_ONE, f"{limits} is no setting; both are at least 1.")
        if limits.max_num_seqs > start.max_num_seqs or limits.max_num_batched_tokens > start.max_num_batched_tokens:
            return Refusal(
                ABOVE_START,
                f"{limits} is above what this engine was started with ({start}); its buffers and CUDA graphs end "
                "there. Start an engine with higher limits.",
            )
        least = limits.max_num_seqs * self.tokens_per_sequence
        if limits.max_num_batched_tokens < least:
            return Refusal(
                TOKENS_BELOW_SEQUENCES,
                f"{limits}: a step in which every sequence decodes takes {least} tokens. Allow that many.",
            )
        if limits.max_num_batched_tokens < self.least_tokens:
            return Refusal(
                TOKENS_BELOW_LEAST,
                f"{limits}: this engine needs at least {self.least_tokens} tokens a step, since "
                f"{self.least_tokens_because}. Allow that many.",
            )
        return None


@dataclass(frozen=True)
class Standing:
    """How the limits stand.

    `wanted` is what the next step will use; `in_force` is what the last one used, None before the first.
    `running` counts the sequences before that step: after a lower limit it falls as requests end. `settled_s` is how
    long after the last change a step ran with it and with no more sequences than it allows, None while none has.
    `changes` and `fall_backs` count since the start; a measurement that saw either move was of more than one setting.
    """

    wanted: Limits
    in_force: Limits | None
    running: int
    settled_s: float | None
    steps: int
    changes: int
    fall_backs: int


class Governor:
    """Holds what is wanted; the channel's thread asks, the engine's thread takes it before each step.

    `clock` gives seconds and never goes back. Without a timeout nothing that is wanted lapses.
    """

    def __init__(
        self, envelope: Envelope, clock: Callable[[], float], heartbeat_timeout_s: float | None = HEARTBEAT_TIMEOUT_S
    ) -> None:
        self.envelope = envelope
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._heard_s = self._changed_s = clock()
        self._settled_s: float | None = None
        self._wanted = envelope.fall_back_to
        self._in_force: Limits | None = None
        self._running = 0
        self._steps = 0
        self._changes = 0
        self._fall_backs = 0

    def ask(self, limits: Limits) -> Refusal | None:
        """Want these values from the next step on; nothing changes when they are refused. Is a heartbeat."""
        refusal = self.envelope.refusal(limits)
        with self._lock:
            self._hear()
            if refusal is None and limits != self._wanted:
                self._want(limits)
                self._changes += 1
        return refusal

    def standing(self) -> Standing:
        """How it stands. Is a heartbeat, which keeps what is wanted but brings back nothing that has lapsed."""
        with self._lock:
            self._hear()
            return Standing(
                self._wanted,
                self._in_force,
                self._running,
                self._settled_s,
                self._steps,
                self._changes,
                self._fall_backs,
            )

    def next_step(self, running: int) -> Limits:
        """What the step that begins now runs with; `running` sequences are in it already."""
        with self._lock:
            self._lapse()
            self._running = running
            self._in_force = self._wanted
            self._steps += 1
            if self._settled_s is None and running <= self._wanted.max_num_seqs:
                self._settled_s = self._clock() - self._changed_s
            return self._wanted

    def _want(self, limits: Limits) -> None:
        self._wanted = limits
        self._changed_s = self._clock()
        self._settled_s = None

    def _hear(self) -> None:
        # First: what has lapsed stays lapsed, or a late heartbeat would hide that it was not in force for a while.
        self._lapse()
        self._heard_s = self._clock()

    def _lapse(self) -> None:
        if self.heartbeat_timeout_s is None:
            return
        silent_s = self._clock() - self._heard_s
        if silent_s > self.heartbeat_timeout_s and self._wanted != self.envelope.fall_back_to:
            self._want(self.envelope.fall_back_to)
            self._fall_backs += 1
