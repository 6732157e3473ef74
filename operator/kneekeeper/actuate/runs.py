"""The TuningRun that a profile starts."""

from __future__ import annotations

from kneekeeper.api.model import API_VERSION
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRunSpec
from kneekeeper.domain.actions import CreateRun
from kneekeeper.domain.names import FINALIZER
from kneekeeper.kube.children import owner_reference
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Resource


def build_run(profile: ServingProfile, action: CreateRun) -> Resource:
    """The run's manifest. The finalizer is there from the start: a run must never leave a clone behind."""
    spec = TuningRunSpec(profile_name=profile.metadata["name"], trigger=action.trigger, schedule=action.schedule)
    return {
        "apiVersion": API_VERSION,
        "kind": TUNING_RUNS.name,
        "metadata": {
            "name": action.name,
            "namespace": profile.metadata["namespace"],
            "finalizers": [FINALIZER],
            "ownerReferences": [owner_reference(SERVING_PROFILES, profile.metadata)],
        },
        "spec": spec.to_resource(),
    }
