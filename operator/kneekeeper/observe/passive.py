"""What production's metrics hold for a run that sends no load."""

from __future__ import annotations

from kneekeeper.api.serving_profile import ProbeTarget, ServingProfile
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.observation import Unreachable
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.metrics import MetricsUnreachable
from kneekeeper.observe.serving import read_serving
from kneekeeper.observe.target import ReadWorkload


async def read_records(
    clients: Clients, run: TuningRun, profile: ServingProfile, workload: ReadWorkload
) -> tuple[EngineRecord, ...] | Unreachable | None:
    """Read before a run that may be passive and where a passive one chooses; None elsewhere, and where the source of
    metrics keeps no history."""
    plan = run.status.plan
    before = plan is None and ProbeTarget.PASSIVE in profile.spec.probe.allow
    chooses = plan is not None and plan.probe_target is ProbeTarget.PASSIVE and run.status.step is RunStep.CHOOSE
    serving = await read_serving(clients, profile, workload) if before or chooses else None
    if serving is None:
        return None
    try:
        return await clients.metrics.of(profile.spec.metrics).records(serving)
    except MetricsUnreachable as error:
        return Unreachable(str(error))
