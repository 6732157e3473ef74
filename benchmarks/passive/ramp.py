"""The knee as a probe finds it: a closed-loop ramp on the same engine and traffic, fitted by the product's own fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.passive.day import DECODES, DURATION, START, Machine, drawn
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.knee import KneeVerdict, ThroughputFit, fit_throughput
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.twin.traffic import TwinTraffic

_LEAST_REQUESTS, _REQUESTS_PER_USER = 600, 12
_WARM_UP = 0.25
_PAST_THE_KNEE = 2.5


class NoKneeError(ValueError):
    """The ramp has no knee that can be compared with."""


@dataclass(frozen=True)
class Probed:
    """What a ramp says."""

    fit: ThroughputFit
    levels: tuple[int, ...]
    throughput: tuple[float, ...]
    """Requests/s at each level."""

    @property
    def knee(self) -> float:
        assert self.fit.knee is not None  # `probe` gives no other
        return self.fit.knee.estimate

    @property
    def compute_knee(self) -> float:
        """4 alpha/beta, wherever the KV cache clips it."""
        assert self.fit.alpha_s is not None
        assert self.fit.beta_s is not None
        return 4 * self.fit.alpha_s / self.fit.beta_s

    def rate_at(self, users: float) -> float:
        """Requests/s of that many concurrent ones, between the levels that were measured."""
        return float(np.interp(users, (0, *self.levels), (0.0, *self.throughput)))


def probe(machine: Machine, traffic: TwinTraffic, room: Floats, seed: int) -> Probed:
    """Levels double until throughput's knee was passed. Raises NoKneeError where that never is."""
    stages: list[StageSummary] = []
    users = 1
    while users <= machine.setting.max_num_seqs:
        stages.append(_stage(machine, traffic, users, room, seed))
        fit = fit_throughput(stages)
        passed = fit.verdict is KneeVerdict.KNEE and fit.knee is not None
        if passed and fit.knee is not None and users >= _PAST_THE_KNEE * fit.knee.estimate:
            return Probed(fit, tuple(s.users or 0 for s in stages), tuple(s.requests_per_second for s in stages))
        users *= 2
    raise NoKneeError(f"{machine.engine.name}: no knee up to {users // 2} users")


def _stage(machine: Machine, traffic: TwinTraffic, users: int, room: Floats, seed: int) -> StageSummary:
    count = max(_LEAST_REQUESTS, _REQUESTS_PER_USER * users)
    requests = drawn(traffic, np.zeros(count), seed)
    served = machine.serve(requests, machine.law(), users, room)
    log = served.log
    end_s = log[:, START] + log[:, DURATION]
    # From when a quarter of the requests were sent to when the last one is.
    since_s, until_s = np.quantile(served.arrival_s, _WARM_UP), served.arrival_s.max()
    within = (end_s > since_s) & (end_s <= until_s)
    firsts = np.sum((served.first_s > since_s) & (served.first_s <= until_s))
    seconds = float(until_s - since_s)
    tokens_per_s = float(log[within, DECODES].sum() + firsts) / seconds
    mean_output = float(requests["output_tokens"].mean())
    return StageSummary(
        name=f"ramp-{users}",
        kind=StageKind.RAMP,
        setting=machine.setting,
        users=users,
        prompt_tokens_mean=float(requests["prompt_tokens"].mean()),
        output_tokens_mean=mean_output,
        requests=count,
        duration=seconds,
        requests_per_second=tokens_per_s / mean_output,
        output_tokens_per_second=tokens_per_s,
        mean_concurrency=users,
    )
