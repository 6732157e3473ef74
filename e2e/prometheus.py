"""A real Prometheus in the cluster that scrapes serving pods and the operator, and nothing of kneekeeper's clones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

NAMESPACE = "monitoring"
NAME = "prometheus"
PORT = 9090
URL = f"http://{NAME}.{NAMESPACE}.svc.cluster.local:{PORT}"
RULES = Path(__file__).parents[1] / "charts" / "kneekeeper" / "files" / "rules.yaml"

# Debian's Prometheus is built without Kubernetes service discovery, so a sidecar writes its targets to files.
_FOLDER = "/targets"
CONFIG: dict[str, Any] = {
    "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
    "rule_files": ["/etc/prometheus/rules.yaml"],
    "scrape_configs": [
        {"job_name": job, "file_sd_configs": [{"files": [f"{_FOLDER}/{job}.json"], "refresh_interval": "2s"}]}
        for job in ("vllm", "kneekeeper")
    ],
}

# Clones carry no annotation of the template's, so this finds pods that serve users only.
_DISCOVERY = f"""
import json, os, ssl, time, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=f"{{account}}/ca.crt")

def write(job, targets):
    path = f"{_FOLDER}/{{job}}.json"
    with open(path + ".new", "w") as file:
        json.dump(targets, file)
    os.rename(path + ".new", path)

while True:
    token = open(f"{{account}}/token").read()
    url = "https://kubernetes.default.svc/api/v1/pods"
    request = urllib.request.Request(url, headers={{"Authorization": f"Bearer {{token}}"}})
    try:
        pods = json.load(urllib.request.urlopen(request, context=context, timeout=10))["items"]
    except OSError as error:
        print(error, flush=True)
        time.sleep(2)
        continue
    found = {{"vllm": [], "kneekeeper": []}}
    for pod in pods:
        metadata, address = pod["metadata"], pod["status"].get("podIP")
        serves = metadata.get("annotations", {{}}).get("prometheus.io/scrape") == "true"
        operates = metadata.get("labels", {{}}).get("app.kubernetes.io/name") == "kneekeeper"
        for port in [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]:
            target = {{"targets": [f"{{address}}:{{port['containerPort']}}"]}}
            if address and serves and port.get("name") == "http":
                labels = {{"namespace": metadata["namespace"], "pod": metadata["name"]}}
                found["vllm"].append({{**target, "labels": labels}})
            if address and operates and port.get("name") == "metrics":
                found["kneekeeper"].append(target)
    for job, targets in found.items():
        write(job, targets)
    time.sleep(2)
"""


def objects(image: str, python_image: str) -> list[dict[str, Any]]:
    """Everything that it needs, its namespace included; `python_image` runs the sidecar."""
    meta = {"name": NAME, "namespace": NAMESPACE}
    labels = {"app": NAME}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {
                "prometheus.yml": yaml.safe_dump(CONFIG),
                "rules.yaml": RULES.read_text(encoding="utf-8"),
                "discovery.py": _DISCOVERY,
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": NAME,
                        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
                        "containers": [
                            {
                                "name": NAME,
                                "image": image,
                                "imagePullPolicy": "Never",
                                "args": [
                                    "--config.file=/etc/prometheus/prometheus.yml",
                                    "--storage.tsdb.path=/data",
                                    "--storage.tsdb.retention.time=6h",
                                ],
                                "ports": [{"containerPort": PORT}],
                                "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
                                "volumeMounts": [
                                    {"name": "config", "mountPath": "/etc/prometheus"},
                                    {"name": "data", "mountPath": "/data"},
                                    {"name": "targets", "mountPath": _FOLDER},
                                ],
                            },
                            {
                                "name": "discovery",
                                "image": python_image,
                                "imagePullPolicy": "Never",
                                "command": ["python3", "/etc/prometheus/discovery.py"],
                                "volumeMounts": [
                                    {"name": "config", "mountPath": "/etc/prometheus"},
                                    {"name": "targets", "mountPath": _FOLDER},
                                ],
                            },
                        ],
                        "volumes": [
                            {"name": "config", "configMap": {"name": NAME}},
                            {"name": "data", "emptyDir": {}},
                            {"name": "targets", "emptyDir": {}},
                        ],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": PORT}]},
        },
    ]
