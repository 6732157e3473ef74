"""Stage summaries for tests of what is decided from them."""

from __future__ import annotations

from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import Slo, StageSpec, Target
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.ladder import LadderSettings, StageOrder
from kneekeeper.domain.summary import summarise
from tests.unit.small_server import SmallServer, run_load

CEILING = Setting(max_num_seqs=64, max_num_batched_tokens=2048)


def summary(name: str = "ramp-8", kind: StageKind = StageKind.RAMP, **values: Any) -> StageSummary:
    defaults: dict[str, Any] = {
        "setting": CEILING,
        "users": 8,
        "prompt_tokens_mean": 200.0,
        "output_tokens_mean": 100.0,
        "requests": 100,
        "duration": 10.0,
        "requests_per_second": 4.0,
        "output_tokens_per_second": 400.0,
        "mean_concurrency": 8.0,
        "p50_ttft": 0.05,
        "p99_ttft": 0.1,
        "p50_tpot": 0.02,
        "p99_tpot": 0.03,
        "misses": 0,
    }
    return StageSummary(name=name, kind=kind, **(defaults | values))


def measure(order: StageOrder, server: SmallServer, slo: Slo, seed: int) -> StageSummary:
    """Run an ordered stage on the small server and sum it up as the operator does."""
    limits = order.limits
    users = order.arrivals.users if isinstance(order.arrivals, Closed) else 0
    requests = limits.min_requests
    if limits.min_token_gaps:
        requests = max(requests, min(30, limits.min_token_gaps // 50))
    warm_up = min(2 * users, limits.max_requests - requests)  # all users, and each once more
    status, samples = run_load(
        server,
        order.arrivals,
        order.prompt_tokens,
        order.output_tokens,
        requests=requests + warm_up,
        seed=seed,
        warmup_share=warm_up / (requests + warm_up) if warm_up else 0.05,
        max_duration_s=limits.max_duration_s,
    )
    spec = StageSpec(
        id="stage",
        target=Target(host="127.0.0.1", port=8000, model="model"),
        prompt_tokens=order.prompt_tokens,
        output_tokens=order.output_tokens,
        arrivals=order.arrivals,
        limits=limits,
        slo=slo,
        seed=seed,
    )
    return summarise(spec, status, samples, name=order.name, kind=order.kind, setting=server.setting)


def run_ladder(settings: LadderSettings, server: SmallServer, seed: int = 0) -> list[StageSummary]:
    """All stages of a ladder, measured on the small server."""
    from kneekeeper.domain.ladder import next_stage

    stages: list[StageSummary] = []
    while isinstance(order := next_stage(settings, stages), StageOrder):
        stages.append(measure(order, server, settings.slo, seed * 1000 + len(stages)))
    return stages
