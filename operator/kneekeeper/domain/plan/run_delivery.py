"""Whether the engine under test gets the live-tuning plugin."""

from __future__ import annotations

from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.domain.live_environment import unknown_variables
from kneekeeper.domain.observation import ContainerView
from kneekeeper.domain.plan.live_scope import is_tuned_live


def delivered_to(container: ContainerView, plan: RunPlan) -> LiveTuning:
    """Allowed where the profile allows it and nothing that the container may have set is replaced by it."""
    allowed = is_tuned_live(plan) and not unknown_variables(container.env)
    return LiveTuning.ALLOWED if allowed else LiveTuning.DISABLED
