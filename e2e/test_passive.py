"""`probe.allow: [Passive]` on a real cluster: nothing but the history in a real Prometheus, and nothing is touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from e2e import past_traffic
from e2e.images import prometheus_image
from e2e.lab import Lab
from e2e.passive import CHECKS, Seen, engines, passive_profile, store_past
from e2e.prometheus import PORT as PROMETHEUS_PORT
from e2e.runs import arguments, children, wait_condition, wait_run_over
from e2e.simulated import PORT
from kneekeeper.observe.own_resources import parse_profile, parse_run

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

NAMESPACE = "passive"


@pytest.fixture(scope="module")
def seen(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    lab.namespace(NAMESPACE, {})  # Prometheus mounts the machine's own files
    workload = engines(lab.image)
    lab.apply(workload.deployment(NAMESPACE))
    lab.wait_rolled_out(workload.name, NAMESPACE)
    before = lab.get("deployment", workload.name, NAMESPACE)
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in lab.find("pods", NAMESPACE, "app=chat")}
    data = store_past(NAMESPACE, pods, arguments(lab, NAMESPACE), tmp_path_factory.mktemp("past"))
    lab.apply(*past_traffic.prometheus(prometheus_image().name, NAMESPACE, data, pods, PORT))
    lab.kubectl("-n", NAMESPACE, "wait", "pod/past", "--for=condition=Ready", "--timeout=180s")
    lab.apply(passive_profile(NAMESPACE, f"http://past.{NAMESPACE}.svc.cluster.local:{PROMETHEUS_PORT}"))
    run = wait_run_over(lab, NAMESPACE, timeout_s=240)
    wait_condition(lab, NAMESPACE, "Recommended", "True", timeout_s=60)
    time.sleep(20)  # long enough for a profile in mode Apply to write
    yield Seen(
        pods=tuple(pods),
        profile=parse_profile(lab.get("sp", workload.name, NAMESPACE)),
        run=parse_run(run),
        deployment_before=before,
        deployment=lab.get("deployment", workload.name, NAMESPACE),
        children=tuple(children(lab, NAMESPACE)),
    )
    lab.delete_namespace(NAMESPACE)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_run_of_history_alone(seen: Seen, check: Callable[[Seen], None]):
    check(seen)
