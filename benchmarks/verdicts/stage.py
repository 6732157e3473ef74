"""One certification stage in simulated time, through the product's own code.

The product sees what its load agent would have seen: counters at regular times, and the rows of the requests
that have ended. When it ends the stage, those that were sent are served to their end, and the operator's
judgement is asked for. Nothing of the engine is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.verdicts.engine import Engine, Floats, Served, serve
from benchmarks.verdicts.truth import Traffic
from kneekeeper.api.offered_load import Fixed, Open
from kneekeeper.api.stage import NOT_STEADY, Limits, Slo, StageSpec, StageState, Target
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.certify import Claim, pass_floor
from kneekeeper.domain.mix_verdicts import verdict_of_mix
from kneekeeper.domain.samples import Bools, StageData
from kneekeeper.domain.steady import MAX_WARMUP_SHARE, Course
from kneekeeper.domain.workload import Workload
from kneekeeper.load.ending import End, StageEnd
from kneekeeper.load.progress import Progress

STAGE_REQUESTS = 3000
"""As many as a certification sends."""

TICK_S = 0.05
LOOK_EVERY_S = 2.0
LOOK_EVERY_SHARE = 0.15
"""The agent looks more often, which costs more than the stage itself; its test decides at the same counts."""


class Watched(Progress):
    """What the agent knows of a stage at the simulated time `now_s`."""

    def __init__(self, served: Served, ok: Bools) -> None:
        super().__init__(0.0)
        self._served = served
        self._by_end = np.argsort(served.last_s, kind="stable")
        self._ended_s = served.last_s[self._by_end]
        self._first_sorted = np.sort(served.first_s)
        index = self._by_end
        self._ok = ok[index]
        ones = np.ones(index.size)
        self._rows = {
            "index": index.astype(np.float64),
            "intended_s": served.arrived_s[index],
            "sent_s": served.arrived_s[index],
            "first_s": served.first_s[index],
            "last_s": self._ended_s,
            "prompt_tokens": served.prompt_tokens[index].astype(np.float64),
            "output_tokens": served.output_tokens[index].astype(np.float64),
            "first_chunk_tokens": ones,
        }
        answers = np.concatenate([[0.0], np.cumsum(served.step_answers)])
        self._t_s = np.arange(TICK_S, self._ended_s[-1] + TICK_S, TICK_S)
        sent, first, ended = (
            np.searchsorted(at, self._t_s, side="right").astype(np.float64)
            for at in (served.arrived_s, self._first_sorted, self._ended_s)
        )
        self._course = (sent, ended, sent - first, answers[np.searchsorted(served.step_end_s, self._t_s, side="right")])
        self.now_s = 0.0

    @property
    def rows(self) -> int:
        return int(np.searchsorted(self._ended_s, self.now_s, side="right"))

    @property
    def sent(self) -> int:
        return int(np.searchsorted(self._served.arrived_s, self.now_s, side="right"))

    @property
    def elapsed_s(self) -> float:
        return self.now_s

    def column(self, name: str) -> Floats:
        return self._rows[name][: self.rows]

    def ok(self) -> Bools:
        return self._ok[: self.rows]

    def course(self) -> Course:
        seen = int(np.searchsorted(self._t_s, self.now_s, side="right"))
        sent, ended, waiting, answers = self._course
        return Course(self._t_s[:seen], sent[:seen], ended[:seen], waiting[:seen], answers[:seen])


@dataclass(frozen=True)
class Outcome:
    """The verdict, and the requests that had been sent by then, warm-up included."""

    verdict: Verdict
    requests: int


def stage_spec(engine: Engine, traffic: Traffic, rate: float, slo: Slo) -> StageSpec:
    """A certification as the operator orders it; lengths and target are not looked at here."""
    arrivals = Open(rate=rate, burstiness=traffic.burstiness)
    return StageSpec(
        id="stage",
        target=Target(host="127.0.0.1", port=80, model="m"),
        prompt_tokens=Fixed(value=1),
        output_tokens=Fixed(value=1),
        arrivals=arrivals,
        limits=Limits(
            min_requests=STAGE_REQUESTS,
            max_requests=STAGE_REQUESTS,
            max_duration_s=max(60.0, 1.5 * STAGE_REQUESTS / rate),
        ),
        slo=slo,
        sequential=True,
        min_pass_requests=pass_floor(arrivals, slo, engine.max_num_seqs),
        seed=0,
    )


@dataclass(frozen=True)
class Failures:
    """Of the answers, `share` turn out to be errors, in bursts of `burst` requests in the mean (geometric)."""

    share: float
    burst: float = 1.0

    def ok(self, requests: int, rng: np.random.Generator) -> Bools:
        """Whether each request is answered."""
        mean_gap = self.burst * (1 - self.share) / self.share
        changes = np.empty(2 * requests + 2, dtype=np.int64)
        changes[0::2], changes[1::2] = (rng.geometric(1 / mean, requests + 1) for mean in (mean_gap, self.burst))
        edges = np.cumsum(changes)
        answered: Bools = np.searchsorted(edges, np.arange(requests), side="right") % 2 == 0
        return answered


def run_stage(
    engine: Engine, traffic: Traffic, rate: float, slo: Slo, seed: int, failures: Failures | None = None
) -> Outcome:
    """Offer `rate` to an engine that was idle, and ask for the verdict."""
    spec = stage_spec(engine, traffic, rate, slo)
    served = serve(engine, traffic.arrivals_s(rate, STAGE_REQUESTS, seed), seed)
    sent_at_most = served.arrived_s.size
    ok = np.ones(sent_at_most, dtype=np.bool_)
    if failures is not None:
        ok = failures.ok(sent_at_most, np.random.default_rng([seed, 2]))
    seen = Watched(served, ok)
    watch = StageEnd(spec, Workload(served.prompt_tokens, served.output_tokens, served.arrived_s))
    end: End | None = None
    while end is None:
        seen.now_s += max(LOOK_EVERY_S, LOOK_EVERY_SHARE * seen.now_s)
        end = watch.look(seen)
    sent, steadiness = seen.sent, watch.steadiness
    if end.state is StageState.SATURATED:
        return Outcome(Verdict.FAIL, sent)
    loaded_s = float(served.arrived_s[sent - 1])
    data = StageData(
        warmup_s=min(steadiness.warmup_s, loaded_s if steadiness.steady else MAX_WARMUP_SHARE * loaded_s),
        intended_s=served.arrived_s[:sent],
        first_s=served.first_s[:sent],
        last_s=served.last_s[:sent],
        prompt_tokens=served.prompt_tokens[:sent],
        output_tokens=served.output_tokens[:sent],
        first_chunk_tokens=np.ones(sent, dtype=np.int64),
        ok=ok[:sent],
    )
    assert spec.min_pass_requests is not None  # set above
    unsteady = end.message if end.reason == NOT_STEADY else ""
    result, _ = verdict_of_mix(data, spec, spec.min_pass_requests, unsteady=unsteady, claim=Claim.PROMISED)
    return Outcome(result.verdict, sent)
