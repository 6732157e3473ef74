"""The charts, rendered by real Helm: valid on every supported Kubernetes, nonsense refused, pods restricted."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from kneekeeper.api.crds import KINDS, definition
from kneekeeper.api.model import GROUP
from kneekeeper.cli.main import main as command
from kneekeeper.handlers.settings import Settings
from tests.contract.chart_rendering import (
    CHART,
    CRD_CHART,
    MONITORING,
    NAMESPACE,
    NEWEST_KUBERNETES,
    OLDEST_KUBERNETES,
    ROOT,
    VALUES,
    Values,
    helm,
    of_kind,
    render,
    template,
    values_matrix,
)

NONSENSE: dict[str, Values] = {
    "an unknown value": {"replicas": 3},
    "an unknown nested value": {"image": {"name": "kneekeeper"}},
    "an unknown log level": {"logLevel": "verbose"},
    "a pull policy in lower case": {"image": {"pullPolicy": "always"}},
    "a digest that is none": {"image": {"digest": "latest"}},
    "a namespace that is no name": {"watchNamespaces": ["Team A"]},
    "the same namespace twice": {"watchNamespaces": ["team-a", "team-a"]},
    "one namespace as a word": {"watchNamespaces": "team-a"},
    "a Prometheus without a scheme": {"prometheus": {"url": "prometheus:9090"}},
    "a priority that adds nodes": {"priorityClass": {"value": -10}},
    "an interval without a unit": {"serviceMonitor": {"interval": "30"}},
    "a runbook that is no link": {"prometheusRule": {"runbookUrl": "docs/runbooks"}},
    "dashboards that no sidecar finds": {"grafana": {"labels": None}},
    "a variable that is the chart's own": {"extraEnv": [{"name": "KNEEKEEPER_IMAGE", "value": "x"}]},
    "two operators away at once": {"podDisruptionBudget": {"maxUnavailable": 2}},
    "a port out of range": {"networkPolicy": {"apiServerPorts": [65536]}},
    "a service account without a name": {"serviceAccount": {"create": False}},
}


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item["spec"]["template"] for kind in ("Deployment", "Job") for item in of_kind(objects, kind)]


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize("chart", [CHART, CRD_CHART], ids=lambda chart: chart.name)
@values_matrix
def test_lint_finds_nothing(chart, values):
    done = helm("lint", "--strict", str(chart), values=values if chart == CHART else {})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kube_version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
@values_matrix
def test_every_object_is_valid(values, kube_version):
    for item in render(CHART, values, kube_version):
        if item["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # no part of Kubernetes: tests/contract/test_monitoring.py reads them with their owner's tools
        kubernetes_validate.validate(item, kube_version, strict=True)


@pytest.mark.parametrize("kube_version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_every_definition_is_valid(kube_version):
    objects = render(CRD_CHART, kube_version=kube_version)
    assert len(objects) == len(KINDS)
    for item in objects:
        kubernetes_validate.validate(item, kube_version, strict=True)


def test_an_older_kubernetes_is_refused():
    assert "requires kubeVersion" in template(CHART, kube_version="1.29").stderr


@pytest.mark.parametrize("values", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_refused(values):
    done = template(CHART, values)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr or "is needed when" in done.stderr


def test_the_crd_chart_refuses_nonsense():
    assert template(CRD_CHART, {"keep": "yes"}).returncode != 0


@pytest.mark.parametrize("keep", [True, False])
def test_the_crd_chart_is_the_definitions(keep):
    rendered = {item["metadata"]["name"]: item for item in render(CRD_CHART, {"keep": keep})}
    for kind in KINDS:
        item = rendered[f"{kind.plural}.{GROUP}"]
        annotations = item["metadata"].pop("annotations", {})
        assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})
        assert item == definition(kind)


@values_matrix
def test_pods_fit_the_restricted_standard(values):
    for pod in pods(render(CHART, values)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def test_the_pods_user_is_the_images_user():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for pod in pods(render(CHART)):
        context = pod["spec"]["securityContext"]
        assert f"\nUSER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile


@values_matrix
def test_pods_are_not_given_the_addresses_of_services(values):
    # A Service called vllm would set VLLM_PORT in them.
    assert all(pod["spec"]["enableServiceLinks"] is False for pod in pods(render(CHART, values)))


def test_two_operators_never_run_at_once():
    deployment = of_kind(render(CHART), "Deployment")[0]["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}


@values_matrix
def test_the_environment_is_what_the_settings_read(values):
    deployment = of_kind(render(CHART, values), "Deployment")[0]
    environment = variables(deployment["spec"]["template"])
    assert set(environment) <= {f"KNEEKEEPER_{name.upper()}" for name in Settings.model_fields}
    settings = Settings.from_environment(environment)
    assert list(settings.watch_namespaces) == values.get("watchNamespaces", [])
    assert settings.prometheus_url == values.get("prometheus", {}).get("url", "")
    assert settings.log_level == values.get("logLevel", "INFO")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "health": settings.health_port,
        "metrics": settings.metrics_port,
    }


def test_variables_of_the_user_stand_beside_the_charts_own():
    extra = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    pod = of_kind(render(CHART, {"extraEnv": extra}), "Deployment")[0]["spec"]["template"]
    assert variables(pod)["HTTPS_PROXY"] == "http://proxy:3128"
    assert variables(pod)["KNEEKEEPER_LOG_LEVEL"] == "INFO"


def test_the_platform_may_choose_the_user():
    for pod in pods(render(CHART, {"fixedUser": False})):
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_common_labels_are_on_every_object_but_select_nothing():
    objects = render(CHART, MONITORING | {"commonLabels": {"team": "inference"}})
    jobs = of_kind(objects, "Job")
    assert all(item["metadata"]["labels"]["team"] == "inference" for item in objects if item not in jobs)
    assert "team" not in of_kind(objects, "Deployment")[0]["spec"]["selector"]["matchLabels"]


def test_agents_run_the_operators_image_unless_told():
    deployment = of_kind(render(CHART), "Deployment")[0]["spec"]["template"]
    assert variables(deployment)["KNEEKEEPER_IMAGE"] == deployment["spec"]["containers"][0]["image"]
    other = render(CHART, {"agent": {"image": "example/agent:1"}})
    assert variables(of_kind(other, "Deployment")[0]["spec"]["template"])["KNEEKEEPER_IMAGE"] == "example/agent:1"


def test_a_digest_wins_over_a_tag():
    image = {"repository": "example/kneekeeper", "tag": "1", "digest": "sha256:" + "a" * 64}
    pod = pods(render(CHART, {"image": image}))[0]
    assert pod["spec"]["containers"][0]["image"] == f"example/kneekeeper@{image['digest']}"


def test_probes_are_the_first_to_go_and_evict_nobody():
    priority = of_kind(render(CHART), "PriorityClass")[0]
    assert priority["value"] == -1_000_000
    assert priority["preemptionPolicy"] == "Never"
    assert priority["globalDefault"] is False


@values_matrix
def test_the_deployment_selects_its_pods_and_not_the_uninstall_job(values):
    objects = render(CHART, values)
    selector = of_kind(objects, "Deployment")[0]["spec"]["selector"]["matchLabels"].items()
    deployment, *jobs = pods(objects)
    assert selector <= deployment["metadata"]["labels"].items()
    assert all(not selector <= job["metadata"]["labels"].items() for job in jobs)


def test_finalizers_are_released_before_the_operator_goes(monkeypatch):
    objects = render(CHART, {"watchNamespaces": ["team-a"]})
    job = of_kind(objects, "Job")[0]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["spec"]["activeDeadlineSeconds"] <= 300
    container = job["spec"]["template"]["spec"]["containers"][0]
    deployment = of_kind(objects, "Deployment")[0]["metadata"]["name"]
    module, *arguments = container["args"]
    assert module == "kneekeeper.cli.main"
    released: list[tuple[str, str, tuple[str, ...]]] = []

    async def release(namespace: str, name: str, watched: tuple[str, ...]) -> None:
        released.append((namespace, name, watched))

    monkeypatch.setattr("kneekeeper.cli.release.release", release)
    assert command(arguments) == 0
    assert released == [(NAMESPACE, deployment, ("team-a",))]
    own = [role for role in of_kind(objects, "Role") if role["metadata"]["namespace"] == NAMESPACE]
    assert own[0]["rules"][0]["resourceNames"] == [deployment]


def test_the_network_policy_lets_only_metrics_in():
    policy = of_kind(render(CHART, VALUES["network policy"]), "NetworkPolicy")[0]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "metrics"}]}]
    assert VALUES["network policy"]["networkPolicy"]["extraEgress"][0] in policy["egress"]
