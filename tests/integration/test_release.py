"""What `kneekeeper finalizers release` leaves at a real API server, where no operator works any more."""

from __future__ import annotations

from kubernetes.aio.config import kube_config

from kneekeeper.api.tuning_run import Trigger
from kneekeeper.cli import release
from kneekeeper.domain.actions import CreateRun
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS
from tests.integration.place import make_profile, make_run


async def test_no_object_waits_for_an_operator_and_only_who_was_suspended_before_still_is(
    place, api_server, monkeypatch
):
    # The library reads the variable KUBECONFIG when it is imported.
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", api_server)
    monkeypatch.setattr(release, "CLEAN_UP_S", 1.0)
    await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))  # has a finalizer
    await make_profile(place.kube, place.namespace, "quiet", suspend=True)
    await make_run(place.kube, place.namespace, "quiet-1", "quiet")
    await release.release(place.namespace, "of-no-operator", (place.namespace,))
    assert await place.names(TUNING_RUNS) == []
    profiles = await place.kube.list(SERVING_PROFILES, place.namespace)
    assert {each["metadata"]["name"]: each["spec"]["suspend"] for each in profiles} == {"chat": False, "quiet": True}
