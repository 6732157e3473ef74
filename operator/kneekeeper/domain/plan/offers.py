"""What a certification offers, and what is promised for it: the offered load over 1.2.

The load is that of the declared arrivals: a rate for open loops, users for a closed one, the time axis of a
trace. What is declared as an amount is offered 1.2 times, and no more where the engine could carry more: the
users of a closed loop (fewer where it cannot carry so many), and a trace in real time, whose promise is the
trace as it was recorded. Objective Throughput offers as much as keeps the engine full (`throughput_runs`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Arrivals, Closed, Open, Replay
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import ArrivalProcess
from kneekeeper.api.stage import MOST_AGENTS
from kneekeeper.api.tuning_run import Certification, Choice, TuningRunStatus
from kneekeeper.domain.agents import STREAMS_PER_AGENT
from kneekeeper.domain.certify import OFFERED_SHARE, SAFETY, pass_floor
from kneekeeper.domain.plan.requests import is_real_time, slos_of, traffic_of
from kneekeeper.domain.plan.throughput_runs import asks_for_throughput, full_load
from kneekeeper.domain.request_kinds import Timing

MOST_USERS = MOST_AGENTS * STREAMS_PER_AGENT
"""As many as all load agents of a run carry."""


@dataclass(frozen=True)
class Offer:
    """The arrivals of a certification and the rate (requests/s) at which they are expected to come."""

    arrivals: Arrivals
    rate: float

    @property
    def users(self) -> int | None:
        return self.arrivals.users if isinstance(self.arrivals, Closed) else None

    @property
    def promised_users(self) -> int | None:
        return None if self.users is None else max(1, math.floor(self.users / SAFETY))


def certified_offer(plan: RunPlan, status: TuningRunStatus, choice: Choice) -> Offer:
    """What is offered to an engine with the chosen setting."""
    if asks_for_throughput(plan.profile_spec):
        return Offer(full_load(plan, choice), choice.sustainable_requests_per_second)
    return _offer(plan, status, OFFERED_SHARE * choice.sustainable_requests_per_second, 1.0, choice)


def baseline_offer(plan: RunPlan, status: TuningRunStatus, proven: Certification, wanted: float) -> Offer:
    """What the present setting is offered: the proven load over `wanted`, one plus the improvement asked for."""
    if asks_for_throughput(plan.profile_spec):
        return Offer(full_load(plan, status.choices[-1]), proven.offered_requests_per_second / wanted)
    if proven.offered_users is not None:
        users = max(1, math.floor(proven.offered_users / wanted))
        think_s = _think_time_s(plan)
        return Offer(Closed(users=users, think_time_s=think_s), proven.offered_requests_per_second / wanted)
    return _offer(plan, status, proven.offered_requests_per_second / wanted, wanted, None)


def _offer(plan: RunPlan, status: TuningRunStatus, rate: float, slower: float, choice: Choice | None) -> Offer:
    traffic = traffic_of(plan.profile_spec, plan.max_model_len, status.sources)
    workload = plan.profile_spec.workload
    if choice is not None and workload is not None and workload.arrivals.process is ArrivalProcess.CLOSED:
        think_s = _think_time_s(plan)
        held = users_at(rate, status, choice, think_s)
        users = min(held, math.ceil(SAFETY * (workload.arrivals.users or held)))
        return Offer(Closed(users=users, think_time_s=think_s), rate * users / held)
    if is_real_time(workload):
        speed = SAFETY / slower
        return Offer(Replay(speed=speed), speed * (_recorded_rate(status) or rate))
    if traffic.timing is Timing.REPLAYED:
        return Offer(Replay(rate=rate), rate)
    return Offer(Open(rate=rate, burstiness=traffic.burstiness), rate)


def least_requests(plan: RunPlan, status: TuningRunStatus, arrivals: Arrivals, setting: Setting) -> int:
    """Requests below which the offer is not certified: those of an open loop whose gaps vary as the trace's where
    one is replayed, and of the most patient class in a mix, whose targets take longest to be missed."""
    if isinstance(arrivals, Replay):
        traffic = traffic_of(plan.profile_spec, plan.max_model_len, status.sources)
        rate = arrivals.rate or (arrivals.speed or 1.0) * (_recorded_rate(status) or 1.0)
        arrivals = Open(rate=rate, burstiness=traffic.burstiness)
    return max(pass_floor(arrivals, slo, setting.max_num_seqs) for slo in slos_of(plan.profile_spec))


def _recorded_rate(status: TuningRunStatus) -> float | None:
    """Requests per second of the trace on its own time axis; None without a trace, or where all came at once."""
    trace = status.sources.trace if status.sources is not None else None
    return (trace.requests - 1) / trace.duration if trace is not None and trace.duration > 0 else None


def _think_time_s(plan: RunPlan) -> float:
    workload = plan.profile_spec.workload
    return 0.0 if workload is None else workload.arrivals.think_time or 0.0


def users_at(rate: float, status: TuningRunStatus, choice: Choice, think_time_s: float) -> int:
    """The users whose requests come at `rate`: Little's law over the engine and the thinking, N(λ) + λ·Z.

    N from the ramp's X(N) = N / (α + βN), not more than the setting admits at a time.
    """
    inside = float(choice.setting.max_num_seqs)
    fit = status.fit
    if fit is not None and fit.alpha is not None and fit.beta is not None and rate * fit.beta < 1:
        inside = min(inside, fit.alpha * rate / (1 - fit.beta * rate))
    return min(MOST_USERS, max(1, math.floor(inside + rate * think_time_s)))
