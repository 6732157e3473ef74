"""A ladder that is run against made-up results."""

from collections.abc import Callable

from kneekeeper.api.offered_load import Closed, LogNormal
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageSummary
from kneekeeper.domain.ladder import LadderDone, LadderSettings, StageOrder, next_stage
from tests.unit.stage_builders import CEILING, summary

SETTINGS = LadderSettings(
    slo=Slo(ttft_s=0.5, tpot_s=0.04),
    prompt_tokens=LogNormal(mean=200, sigma=0.5, maximum=1000),
    output_tokens=LogNormal(mean=100, sigma=0.5, maximum=500),
    burstiness=1.0,
    max_concurrency=512,
    ceiling=CEILING,
    max_stage_duration_s=120.0,
    control_tolerance=0.15,
    kv_cache_tokens=None,
    prefill_tokens=(128, 512, 1024),
)

Answer = Callable[[StageOrder, int], dict[str, object]]


def play(
    answer: Answer = lambda order, index: {}, settings: LadderSettings = SETTINGS, most: int = 60
) -> tuple[list[StageSummary], LadderDone]:
    """Run the ladder against made-up results; `answer` changes fields of the stage at an index."""
    stages: list[StageSummary] = []
    while isinstance(order := next_stage(settings, stages), StageOrder):
        assert len(stages) < most, [stage.name for stage in stages]
        users = order.arrivals.users if isinstance(order.arrivals, Closed) else None
        n = users or 8
        throughput = n / (1 + n / 16)
        values: dict[str, object] = {
            "users": users,
            "offered_requests_per_second": None if users else 1.0,
            "setting": settings.ceiling,
            "requests_per_second": throughput,
            "output_tokens_per_second": 100 * throughput,
        }
        stages.append(summary(order.name, order.kind, **(values | answer(order, len(stages)))))
    return stages, order
