"""What production's metrics do not tell after a serving pod was measured in place: its own counters hold the probe's
requests among the users', and no source of metrics can tell them apart.

Looks that reach back into such a run are taken for not known, and what was known before it stands.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.run_in_place import is_in_place

HISTORY_S = 7 * 86_400.0
"""The longest look at traffic; demand and the replicas' knees look a day back."""

READINGS_S = 3600.0
"""More than any look that a diagnosis takes."""


def without_probe_traffic(obs: ProfileObservation) -> ProfileObservation:
    """The observation without what an in-place run has mixed its requests into."""
    if not history_holds_probe(obs):
        return obs
    age_s = _youngest_s(obs)
    obs = replace(obs, history=None, history_read=False, demand=None)
    if age_s <= READINGS_S:
        obs = replace(obs, engine_readings=None, gpu_windows=None)
    if age_s <= _violations_window_s(obs):
        obs = replace(obs, violations=None, side_by_side=None)
    return obs


def history_holds_probe(obs: ProfileObservation) -> bool:
    """Whether what the source of metrics remembers is not to be read at all."""
    return _youngest_s(obs) <= HISTORY_S


def _youngest_s(obs: ProfileObservation) -> float:
    """Seconds since the last load on a serving pod; infinite where none is known."""
    return min((age for run in obs.runs if (age := _age_s(obs, run)) is not None), default=math.inf)


def _age_s(obs: ProfileObservation, run: TuningRun) -> float | None:
    """Seconds since a run's last load on a serving pod, 0 while it may go on; None of one that sent none."""
    status = run.status
    if status.plan is None or not is_in_place(status.plan) or not (status.stages or status.current_stage):
        return None
    return 0.0 if status.finished_at is None else max(0.0, (obs.now - status.finished_at).total_seconds())


def _violations_window_s(obs: ProfileObservation) -> float:
    """How far the present look at violations reaches back."""
    rollout = obs.profile.status.rollout or obs.profile.status.watched
    if rollout is not None and rollout.verify_from is not None:
        return (obs.now - rollout.verify_from).total_seconds()
    return obs.profile.spec.update_policy.verify_for
