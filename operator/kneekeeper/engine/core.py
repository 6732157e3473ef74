"""The engine core: the scheduler, driven in real time by the step-time law.

Nothing here is a task or a coroutine. One timer runs at a time; when a step ends, each request that got a
token is told, and the next step is planned. Steps follow each other on the law's own time line, so that the
lateness of one timer is not added to the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from kneekeeper.domain.scheduler import Request, Scheduler
from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.engine.metrics import EngineMetrics, FinishedRequest, SchedulerState
from kneekeeper.engine.steptime import StepTimer

_EARLY_S = 0.0006
"""A timer may fire this much before the step ends: uvloop's timers count whole milliseconds."""

_LARGEST_LAG_S = 1.0
"""A process that was held up catches up, since a GPU does not wait for it; of more than this, the rest is lost."""


class EngineState(StrEnum):
    RUNNING = "Running"
    HUNG = "Hung"
    """Steps no longer end."""
    DEAD = "Dead"
    """The core has failed; the server knows."""


class TokenSink(Protocol):
    """Where a request's tokens go."""

    def token(self, generated: int) -> None:
        """The `generated`-th token, not the last one."""

    def last_token(self, generated: int) -> None:
        """The last token."""

    def failed(self) -> None:
        """The engine died."""


class Generation:
    """A request in the engine, with vLLM's timestamps (seconds of the clock that the core was given)."""

    __slots__ = (
        "arrival_s", "finish_reason", "first_token_s", "generated", "last_token_s", "max_tokens", "preemptions",
        "queued_s", "request", "scheduled_s", "sink",
    )  # fmt: skip

    def __init__(
        self, request: Request, finish_reason: str, max_tokens: int, arrival_s: float, sink: TokenSink
    ) -> None:
        """`finish_reason` is what the last token will bring; `arrival_s` when the API process had it."""
        self.request = request
        self.finish_reason = finish_reason
        self.max_tokens = max_tokens
        self.sink = sink
        self.arrival_s = arrival_s
        self.queued_s = arrival_s
        self.scheduled_s = 0.0
        self.first_token_s = 0.0
        self.last_token_s = 0.0
        self.generated = 0
        self.preemptions = 0


class EngineCore:
    """Runs requests to their last token. To be used from the event loop's thread only."""

    def __init__(
        self,
        scheduler: Scheduler,
        timer: StepTimer,
        metrics: EngineMetrics,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        api_s_per_request: float,
        before_step: Callable[[], None] | None = None,
    ) -> None:
        """`before_step` may change the scheduler's limits."""
        self.state = EngineState.RUNNING
        self.prompt_tokens = 0
        """Prompt tokens of requests that got their first token, since the start."""
        self.generation_tokens = 0
        self._scheduler = scheduler
        self._timer = timer
        self._metrics = metrics
        self._loop = loop
        self._clock = clock
        self._api_s_per_request = api_s_per_request
        self._before_step = before_step
        self._api_free_s = 0.0
        self._arriving: deque[tuple[float, Generation]] = deque()
        self._live: dict[str, Generation] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._stepping = False
        self._step_end_s = 0.0

    @property
    def scheduler_state(self) -> SchedulerState:
        scheduler = self._scheduler
        return SchedulerState(scheduler.num_running, scheduler.num_waiting, scheduler.kv_cache_usage)

    def submit(self, generation: Generation) -> None:
        """Take a request; it reaches the scheduler when the API process has worked through it."""
        now_s = self._clock()
        self._api_free_s = max(now_s, self._api_free_s) + self._api_s_per_request
        self._live[generation.request.id] = generation
        self._arriving.append((self._api_free_s, generation))
        if not self._stepping and self._handle is None:
            self._wait_for_arrival(now_s)

    def abort(self, request_id: str) -> None:
        """Forget a request, wherever it is. An unknown id is no error."""
        self._live.pop(request_id, None)
        self._scheduler.abort(request_id)

    def fail(self, state: EngineState) -> None:
        """Stop stepping for good. DEAD tells every request, HUNG tells none."""
        self.state = state
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._stepping = True
        if state is EngineState.DEAD:
            live, self._live = self._live, {}
            for generation in live.values():
                generation.sink.failed()

    def _wait_for_arrival(self, now_s: float) -> None:
        self._handle = self._loop.call_later(max(0.0, self._arriving[0][0] - now_s), self._wake)

    def _wake(self) -> None:
        self._handle = None
        now_s = self._clock()
        if self._arriving and self._arriving[0][0] > now_s + _EARLY_S:
            self._wait_for_arrival(now_s)
        else:
            self._begin_step(now_s, now_s + _EARLY_S)

    def _begin_step(self, start_s: float, admit_until_s: float) -> None:
        """Start a step on the time line at `start_s`, or go idle."""
        arriving = self._arriving
        while arriving and arriving[0][0] <= admit_until_s:
            ready_s, generation = arriving.popleft()
            if generation.request.id in self._live:
                generation.queued_s = ready_s
                self._scheduler.add(generation.request)
        if not self._scheduler.has_requests:
            self._stepping = False
            if arriving:
                self._wait_for_arrival(start_s)
            return
        if self._before_step is not None:
            self._before_step()
        plan = self._scheduler.step()
        self._record_plan(plan, start_s)
        self._stepping = True
        self._step_end_s = start_s + self._timer.duration_s(plan, start_s)
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        self._handle = self._loop.call_later(max(0.0, self._step_end_s - self._clock()), self._end_step)

    def _record_plan(self, plan: StepPlan, start_s: float) -> None:
        live = self._live
        for request_id in plan.admitted:
            generation = live[request_id]
            if not generation.scheduled_s:
                generation.scheduled_s = max(start_s, generation.queued_s)
                self._metrics.record_admission(generation.request.prompt_tokens, generation.request.cached_tokens)
        for request_id in plan.preempted:
            live[request_id].preemptions += 1
        if plan.preempted:
            self._metrics.record_preemptions(len(plan.preempted))

    def _end_step(self) -> None:
        self._handle = None
        now_s = self._clock()
        if now_s < self._step_end_s - _EARLY_S:
            self._wait_for_end()
            return
        outcome = self._scheduler.complete_step()
        self._emit(outcome.sampled, frozenset(outcome.finished), now_s)
        self._metrics.record_state(self.scheduler_state)
        self._begin_step(max(self._step_end_s, now_s - _LARGEST_LAG_S), now_s)

    def _emit(self, sampled: tuple[str, ...], finished: frozenset[str], now_s: float) -> None:
        live = self._live
        last_tokens: dict[float, int] = {}
        ttfts_s: list[float] = []
        first_prompt_tokens = first_cached_tokens = 0
        for request_id in sampled:
            generation = live[request_id]
            generated = generation.generated = generation.generated + 1
            if generated == 1:
                generation.first_token_s = now_s
                first_prompt_tokens += generation.request.prompt_tokens
                first_cached_tokens += generation.request.cached_tokens
                ttfts_s.append(now_s - generation.arrival_s)
            else:
                last_s = generation.last_token_s
                last_tokens[last_s] = last_tokens.get(last_s, 0) + 1
            generation.last_token_s = now_s
            if request_id in finished:
                self._finish(generation, now_s)
            else:
                generation.sink.token(generated)
        self.generation_tokens += len(sampled)
        self.prompt_tokens += first_prompt_tokens
        if ttfts_s:
            self._metrics.record_first_tokens(first_prompt_tokens, first_cached_tokens, ttfts_s)
        if sampled:
            gaps = {now_s - last_s: times for last_s, times in last_tokens.items()}
            self._metrics.record_step(len(sampled), first_prompt_tokens, gaps)

    def _finish(self, generation: Generation, now_s: float) -> None:
        del self._live[generation.request.id]
        self._metrics.record_finished(
            FinishedRequest(
                finish_reason=generation.finish_reason,
                prompt_tokens=generation.request.prompt_tokens,
                generation_tokens=generation.generated,
                max_tokens=generation.max_tokens,
                preemptions=generation.preemptions,
                e2e_s=now_s - generation.arrival_s,
                queue_s=max(0.0, generation.scheduled_s - generation.queued_s),
                prefill_s=generation.first_token_s - generation.scheduled_s,
                decode_s=now_s - generation.first_token_s,
            )
        )
        generation.sink.last_token(generation.generated)
