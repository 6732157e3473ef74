"""A real Prometheus in the cluster that scrapes serving pods, and nothing of kneekeeper's clones."""

from __future__ import annotations

from typing import Any

import yaml

NAMESPACE = "monitoring"
NAME = "prometheus"
PORT = 9090
URL = f"http://{NAME}.{NAMESPACE}.svc.cluster.local:{PORT}"

# Debian's Prometheus is built without Kubernetes service discovery, so a sidecar writes its targets to a file.
_TARGETS = "/targets/targets.json"
CONFIG: dict[str, Any] = {
    "global": {"scrape_interval": "2s"},
    "scrape_configs": [
        {"job_name": "vllm", "file_sd_configs": [{"files": [_TARGETS], "refresh_interval": "2s"}]},
    ],
}

# Clones carry no annotation of the template's, so this finds pods that serve users only.
_DISCOVERY = f"""
import json, os, ssl, time, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=f"{{account}}/ca.crt")
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
    targets = [
        {{
            "targets": [f"{{pod['status']['podIP']}}:{{port['containerPort']}}"],
            "labels": {{"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}},
        }}
        for pod in pods
        if pod["metadata"].get("annotations", {{}}).get("prometheus.io/scrape") == "true" and pod["status"].get("podIP")
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if port.get("name") == "http"
    ]
    with open("{_TARGETS}.new", "w") as file:
        json.dump(targets, file)
    os.rename("{_TARGETS}.new", "{_TARGETS}")
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
            "data": {"prometheus.yml": yaml.safe_dump(CONFIG), "discovery.py": _DISCOVERY},
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
                                    {"name": "targets", "mountPath": "/targets"},
                                ],
                            },
                            {
                                "name": "discovery",
                                "image": python_image,
                                "imagePullPolicy": "Never",
                                "command": ["python3", "/etc/prometheus/discovery.py"],
                                "volumeMounts": [
                                    {"name": "config", "mountPath": "/etc/prometheus"},
                                    {"name": "targets", "mountPath": "/targets"},
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
