"""The engine core on a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from kneekeeper.domain.scheduler import Request, Scheduler
from kneekeeper.engine.arguments import parse_arguments
from kneekeeper.engine.configuration import configure
from kneekeeper.engine.core import EngineCore, EngineState, Generation
from kneekeeper.engine.hardware import Hardware, StepTimeLaw
from kneekeeper.engine.memory import allocate_kv_cache
from kneekeeper.engine.metrics import EngineMetrics
from kneekeeper.engine.steptime import StepTimer

_STEP_S = 0.010
_API_S = 0.002


class Timer:
    def __init__(self, at_s: float, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.at_s = at_s
        self.call = call
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clockwork:
    """A loop whose timers fire when the test says so, each `late_s` after its time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.late_s = 0.0
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(self.now_s + delay_s, call, arguments)
        self.timers.append(timer)
        return timer

    def run(self, until_s: float = float("inf")) -> None:
        while True:
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            due = min(self.timers, key=lambda timer: timer.at_s, default=None)
            if due is None or due.at_s > until_s:
                break
            self.timers.remove(due)
            self.now_s = max(self.now_s, due.at_s + self.late_s)
            due.call(*due.arguments)
        if until_s != float("inf"):
            self.now_s = max(self.now_s, until_s)


class Sink:
    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        self.times_s: list[float] = []
        self.ended = 0
        self.died = False

    def token(self, generated: int) -> None:
        self.times_s.append(self._clockwork.now_s)
        assert generated == len(self.times_s)

    def last_token(self, generated: int) -> None:
        self.token(generated)
        self.ended += 1

    def failed(self) -> None:
        self.died = True


class Bench:
    """A core with steps of exactly ten milliseconds and an API process that needs two per request."""

    def __init__(self, flags: str = "") -> None:
        law = StepTimeLaw(
            base_ms=1000 * _STEP_S,
            per_sequence_ms=0,
            per_prefill_token_ms=0,
            per_prefill_token_pair_ms=0,
            per_kv_token_ms=0,
            eager_ms=0,
            noise=0,
        )
        hardware = Hardware(step_time=law)
        configuration = configure(parse_arguments(["serve", "m", *flags.split()]), hardware)
        kv_cache = allocate_kv_cache(configuration, hardware)
        self.registry = CollectorRegistry()
        self.clockwork = Clockwork()
        self.core = EngineCore(
            Scheduler(configuration.scheduler_limits(kv_cache.num_gpu_blocks)),
            StepTimer(law, (), random.Random(0)),
            EngineMetrics(self.registry, configuration, kv_cache),
            cast(Any, self.clockwork),
            lambda: self.clockwork.now_s,
            _API_S,
        )

    def submit(self, name: str, prompt_tokens: int = 10, output_tokens: int = 5) -> Sink:
        sink = Sink(self.clockwork)
        request = Request(name, prompt_tokens, output_tokens)
        self.core.submit(Generation(request, "length", output_tokens, self.clockwork.now_s, sink))
        return sink

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"vllm:{name}", {"model_name": "m", "engine": "0", **labels})
        assert value is not None
        return value


def test_tokens_come_step_by_step_after_the_api_process_had_the_request() -> None:
    bench = Bench()
    start_s = bench.clockwork.now_s
    sink = bench.submit("a")
    bench.clockwork.run()
    assert sink.times_s == pytest.approx([start_s + _API_S + _STEP_S * n for n in range(1, 6)])
    assert sink.ended == 1


def test_requests_wait_for_each_other_in_the_api_process() -> None:
    bench = Bench()
    start_s = bench.clockwork.now_s
    sinks = [bench.submit(f"r{n}", output_tokens=1) for n in range(8)]
    bench.clockwork.run()
    # The first is scheduled after 2 ms; while its step runs, the next five are ready (4 to 12 ms).
    steps = [round((sink.times_s[0] - start_s) / _STEP_S, 1) for sink in sinks]
    assert steps == [1.2, 2.2, 2.2, 2.2, 2.2, 2.2, 3.2, 3.2]


def test_late_timers_do_not_make_the_engine_slower() -> None:
    bench = Bench()
    bench.clockwork.late_s = 0.004
    start_s = bench.clockwork.now_s
    sink = bench.submit("a", output_tokens=101)
    bench.clockwork.run()
    assert sink.times_s[-1] - start_s == pytest.approx(101 * _STEP_S + _API_S, abs=0.01)


def test_a_long_pause_of_the_process_is_not_caught_up_beyond_a_second() -> None:
    bench = Bench()
    sink = bench.submit("a", output_tokens=1000)
    bench.clockwork.run(until_s=101.0)
    before = len(sink.times_s)
    bench.clockwork.now_s += 5.0
    bench.clockwork.run(until_s=bench.clockwork.now_s)
    assert len(sink.times_s) - before == pytest.approx(1.0 / _STEP_S, abs=2)


def test_the_histograms_hold_exactly_what_happened() -> None:
    bench = Bench()
    bench.submit("a", prompt_tokens=10, output_tokens=5)
    bench.submit("b", prompt_tokens=20, output_tokens=1)
    bench.clockwork.run()
    assert bench.value("prompt_tokens_total") == 30
    assert bench.value("generation_tokens_total") == 6
    assert bench.value("time_to_first_token_seconds_count") == 2
    # a: 2 ms API and one step; b: 4 ms API, of which the rest of a's step is queueing, and one step.
    assert bench.value("time_to_first_token_seconds_sum") == pytest.approx(0.012 + 0.022)
    assert bench.value("request_queue_time_seconds_sum") == pytest.approx(0.008)
    assert bench.value("request_prefill_time_seconds_sum") == pytest.approx(0.020)
    assert bench.value("inter_token_latency_seconds_count") == 4
    assert bench.value("inter_token_latency_seconds_sum") == pytest.approx(0.040)
    assert bench.value("request_time_per_output_token_seconds_count") == 2
    assert bench.value("request_time_per_output_token_seconds_sum") == pytest.approx(0.010)
    assert bench.value("e2e_request_latency_seconds_sum") == pytest.approx(0.052 + 0.022)
    assert bench.value("request_decode_time_seconds_sum") == pytest.approx(0.040)
    assert bench.value("request_inference_time_seconds_sum") == pytest.approx(0.060)
    assert bench.value("request_success_total", finished_reason="length") == 2
    assert bench.value("iteration_tokens_total_count") == 5


def test_gauges_show_the_state_after_the_last_step() -> None:
    bench = Bench("--max-num-seqs 1")
    bench.submit("a", output_tokens=5)
    bench.submit("b", output_tokens=5)
    bench.clockwork.run(until_s=100.035)
    assert (bench.value("num_requests_running"), bench.value("num_requests_waiting")) == (1, 1)
    assert bench.value("num_requests_waiting_by_reason", reason="capacity") == 1
    assert bench.value("kv_cache_usage_perc") > 0
    bench.clockwork.run()
    assert (bench.value("num_requests_running"), bench.value("kv_cache_usage_perc")) == (0, 0)


def test_preemptions_are_counted_where_they_happen_and_per_request() -> None:
    bench = Bench("--num-gpu-blocks-override 14 --max-model-len 200 --max-num-batched-tokens 200")
    sinks = [bench.submit(name, prompt_tokens=90, output_tokens=100) for name in ("a", "b")]
    bench.clockwork.run()
    assert [len(sink.times_s) for sink in sinks] == [100, 100]
    assert bench.value("num_preemptions_total") >= 1
    assert bench.value("request_num_preemptions_sum") == bench.value("num_preemptions_total")
    assert bench.value("prompt_tokens_total") == 180


@pytest.mark.parametrize("after_s", [0.001, 0.005, 0.025])
def test_an_aborted_request_gets_nothing_more_and_is_not_counted_as_finished(after_s: float) -> None:
    bench = Bench()
    gone, other = bench.submit("gone"), bench.submit("other")
    bench.clockwork.run(until_s=100.0 + after_s)
    seen = len(gone.times_s)
    bench.core.abort("gone")
    bench.clockwork.run()
    assert len(gone.times_s) == seen
    assert (gone.ended, other.ended) == (0, 1)
    assert bench.value("request_success_total", finished_reason="abort") == 0
    assert bench.value("num_requests_running") == 0
    assert bench.submit("later") is not None
    bench.clockwork.run()
    assert bench.value("request_success_total", finished_reason="length") == 2


def test_a_dead_core_tells_its_requests_and_a_hung_one_does_not() -> None:
    for state, told in ((EngineState.DEAD, True), (EngineState.HUNG, False)):
        bench = Bench()
        sink = bench.submit("a")
        bench.clockwork.run(until_s=100.025)
        seen = len(sink.times_s)
        bench.core.fail(state)
        later = bench.submit("b")
        bench.clockwork.run()
        assert (sink.died, len(sink.times_s), later.times_s) == (told, seen, [])
        assert bench.core.state is state
