"""The charts as real Helm renders them, with values that users may give."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from e2e.cluster.binaries import HELM, ensure_built

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "kneekeeper"
CRD_CHART = ROOT / "charts" / "kneekeeper-crds"
NAMESPACE = "operators"
OLDEST_KUBERNETES = "1.30"
NEWEST_KUBERNETES = ".".join(kubernetes_validate.latest_version().split(".")[:2])

Values = dict[str, Any]

MONITORING: Values = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "stack"}, "relabelings": [{"targetLabel": "cluster"}]},
    "podMonitor": {"enabled": True, "namespace": "monitoring", "matchLabels": {"app": "chat"}},
    "prometheusRule": {"enabled": True, "runbookUrl": "https://runbooks.example/kneekeeper/"},
    "grafana": {"enabled": True, "annotations": {"grafana_folder": "Inference"}},
}

VALUES: dict[str, Values] = {
    "defaults": {},
    "namespaced": {"watchNamespaces": ["team-a", "team-b"]},
    "namespaced without cluster reads": {
        "watchNamespaces": ["team-a"],
        "rbac": {"clusterReads": False},
    },
    "network policy": {
        "networkPolicy": {
            "enabled": True,
            "extraEgress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 9090}]}],
        }
    },
    "digest, Prometheus and placement": {
        "image": {"repository": "example/kneekeeper", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "agent": {"image": "example/agent:1"},
        "prometheus": {"url": "http://prometheus.monitoring:9090"},
        "logLevel": "DEBUG",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "podLabels": {"team": "serving"},
    },
    "monitoring": MONITORING,
    "an operator that is one's own": {
        "commonLabels": {"team": "inference"},
        "operatorPriorityClassName": "system-cluster-critical",
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": 0},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
    "all of it from elsewhere": {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "priorityClass": {"create": False, "name": "lowest"},
        "releaseFinalizers": False,
    },
}


def helm(*arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    return _helm(arguments, json.dumps(values or {}))


@cache
def _helm(arguments: tuple[str, ...], values: str) -> subprocess.CompletedProcess[str]:
    """Many tests look at the same rendering."""
    return subprocess.run(
        [str(ensure_built(HELM) / "helm"), *arguments, "--values", "-"],
        input=values,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def template(
    chart: Path, values: Values | None = None, kube_version: str = NEWEST_KUBERNETES
) -> subprocess.CompletedProcess[str]:
    options = ("--namespace", NAMESPACE, "--kube-version", kube_version)
    return helm("template", "release", str(chart), *options, values=values)


def render(chart: Path, values: Values | None = None, kube_version: str = NEWEST_KUBERNETES) -> list[dict[str, Any]]:
    done = template(chart, values, kube_version)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for kind in ("ClusterRole", "Role") for role in of_kind(objects, kind) for rule in role["rules"]]


values_matrix = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
