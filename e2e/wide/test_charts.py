"""The charts from install to uninstall while a workload is tuned, coming from the charts of the version before.

The operator is this tree's in both charts. It never works with the older definitions, which would drop what it writes;
those are rolled back in `tests/integration/test_chart_life.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.charts import PRESENT, PREVIOUS, everything
from e2e.lab import SYSTEM_NAMESPACE, Lab, Object, helm, install
from e2e.runs import children, deploy, runs, wait_run_over, wait_step
from e2e.wide import LONGEST_RUN_S, SLACK, steady

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

RECOMMEND = SLACK | {"updatePolicy": {"mode": "Recommend"}}
OURS = ("ServingProfile", "TuningRun", "ConfigMap")
"""What is the users' in a profile's namespace: the samples of a run are in ConfigMaps."""


@pytest.fixture
def bare(lab: Lab) -> Iterator[None]:
    """No release in the cluster; afterwards the lab's own again."""
    try:
        uninstall(lab)
        yield
    finally:
        install(lab)


def uninstall(lab: Lab) -> None:
    """As the docs tell, with the job that releases finalizers."""
    helm(lab.cluster, "uninstall", "kneekeeper", "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "240s")
    helm(lab.cluster, "uninstall", "kneekeeper-crds", "-n", SYSTEM_NAMESPACE)
    lab.wait("the operator's pods to go", lambda: not lab.find("pods", SYSTEM_NAMESPACE), timeout_s=90)


def version(lab: Lab) -> str:
    """Of the chart that the operator's ready pods come from."""
    lab.wait_rolled_out("kneekeeper", SYSTEM_NAMESPACE)
    chart: str = lab.get("deployment", "kneekeeper", SYSTEM_NAMESPACE)["metadata"]["labels"]["helm.sh/chart"]
    return chart.removeprefix("kneekeeper-")


def stored(lab: Lab, namespace: str) -> dict[str, Object]:
    """Identity, spec and outcome of the profile and its runs."""
    found = [lab.get("sp", "chat", namespace), *runs(lab, namespace)]
    return {each["metadata"]["uid"]: {"spec": each["spec"], "outcome": each["status"].get("outcome")} for each in found}


@pytest.mark.parametrize("scope", ["cluster", "namespace"])
def test_an_install_goes_its_whole_way_while_a_workload_is_tuned(lab: Lab, namespace: str, bare: None, scope: str):
    values = [f"watchNamespaces={{{namespace}}}"] if scope == "namespace" else []
    before = everything(lab.kubectl)
    install(lab, values, PREVIOUS)
    assert version(lab) == PREVIOUS.version

    upgrade = ("upgrade", "-n", SYSTEM_NAMESPACE, "--reset-then-reuse-values")
    helm(lab.cluster, *upgrade, "kneekeeper-crds", str(PRESENT.definitions))
    deploy(lab, namespace, steady(lab), **RECOMMEND)
    begun = wait_step(lab, namespace, "Ramp", stages=1, timeout_s=LONGEST_RUN_S)
    helm(lab.cluster, *upgrade, "kneekeeper", str(PRESENT.operator), "--wait", "--timeout", "120s")
    assert version(lab) == PRESENT.version
    ended = wait_run_over(lab, namespace, timeout_s=LONGEST_RUN_S)
    assert ended["metadata"]["uid"] == begun["metadata"]["uid"], "the run went on"
    kept = stored(lab, namespace)

    for revision, charts in (("1", PREVIOUS), ("2", PRESENT)):
        helm(lab.cluster, "rollback", "kneekeeper", revision, "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "120s")
        assert version(lab) == charts.version
        assert stored(lab, namespace) == kept

    uninstall(lab)
    assert stored(lab, namespace) == kept
    assert children(lab, namespace) == []
    lab.kubectl("-n", namespace, "delete", "deployment", "chat", "--cascade=foreground", "--timeout=180s")
    left = everything(lab.kubectl) - before
    assert [name for name in left if name.split()[0] not in OURS or f" {namespace}/" not in name] == []
    lab.kubectl("-n", namespace, "delete", "sp,tr", "--all", "--timeout=90s")
