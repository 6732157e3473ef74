"""A cluster with kneekeeper and Prometheus in it, and the few verbs that tests and the demo need."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import yaml

from e2e import charts, prometheus
from e2e.charts import Charts
from e2e.cluster import Cluster, ClusterSpec, ensure_up
from e2e.cluster.progress import told
from e2e.images import operator_image, prometheus_image

SYSTEM_NAMESPACE = "kneekeeper-system"
GPU_PRODUCT = "NVIDIA-L4"
PATIENCE = 3.0
"""Machines differ and are shared: only what does not come in this many times what a quiet one takes is missing."""

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

Object = dict[str, Any]


@dataclass(frozen=True)
class Lab:
    """A cluster that runs the operator. All waiting is bounded and says what it waited for."""

    cluster: Cluster
    image: str

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Standard output. Raises `CommandFailed` with kubectl's words."""
        return self.cluster.kubectl(*arguments, stdin=text)

    def get(self, kind: str, name: str, namespace: str) -> Object:
        """The object as the API server has it."""
        found: Object = json.loads(self.kubectl("-n", namespace, "get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, namespace: str, selector: str = "") -> list[Object]:
        """All objects of a kind in a namespace."""
        found = json.loads(self.kubectl("-n", namespace, "get", kind, "-l", selector, "-o", "json"))
        items: list[Object] = found["items"]
        return items

    def apply(self, *objects: Object) -> None:
        """Server-side as a user's kubectl does it."""
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(objects))

    def delete_namespace(self, name: str) -> None:
        """And wait until nothing of it is left."""
        self.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=300s")

    def namespace(self, name: str, labels: dict[str, str] | None = None) -> str:
        """A fresh namespace; restricted pod security unless other labels are given."""
        self.delete_namespace(name)
        metadata = {"name": name, "labels": RESTRICTED if labels is None else labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return name

    def wait(self, what: str, seen: Callable[[], object], *, timeout_s: float, every_s: float = 1.0) -> Any:
        """The first value of `seen` that is true; `timeout_s` is what a quiet machine may take.

        Raises TimeoutError that says what was waited for.
        """
        end = time.monotonic() + PATIENCE * timeout_s
        while time.monotonic() < end:
            value = seen()
            if value:
                return value
            time.sleep(every_s)
        raise TimeoutError(f"waited {PATIENCE * timeout_s:.0f} s for {what}")

    def wait_rolled_out(self, deployment: str, namespace: str, timeout_s: int = 110) -> None:
        """Every replica runs the present template and is ready."""
        self.kubectl(
            "-n", namespace, "rollout", "status", f"deployment/{deployment}", f"--timeout={PATIENCE * timeout_s:.0f}s"
        )

    def operator_pods(self) -> list[Object]:
        """The operator's own pods."""
        return self.find("pods", SYSTEM_NAMESPACE, "app.kubernetes.io/name=kneekeeper")

    def kill_operator(self) -> None:
        """SIGKILL, as a crash would: no handler of it gets to run."""
        (pod,) = self.operator_pods()
        self.kubectl("-n", SYSTEM_NAMESPACE, "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")


def condition(obj: Object, type_: str) -> Object:
    """One condition of an object; its status is empty where it was never set."""
    found = (c for c in obj.get("status", {}).get("conditions", []) if c["type"] == type_)
    return next(found, {"type": type_, "status": "", "reason": "", "message": ""})


def helm(cluster: Cluster, *arguments: str) -> None:
    """Real Helm. Raises CalledProcessError."""
    charts.helm(cluster.kubeconfig, *arguments)


def open_lab(spec: ClusterSpec) -> Lab:
    """Start the cluster if need be, load this work tree's images, install both charts and Prometheus."""
    with ThreadPoolExecutor(1) as pool:  # images are built while the cluster starts
        images = pool.submit(lambda: (operator_image(), prometheus_image()))
        cluster = ensure_up(spec)
        operator, scraper = images.result()
    with told("Installing kneekeeper and Prometheus in it, until they are ready."):
        for image in (operator, scraper):
            cluster.load_image(image.archive)
        lab = Lab(cluster, operator.name)
        lab.apply(*prometheus.objects(scraper.name, operator.name))
        install(lab)
        lab.wait_rolled_out(prometheus.NAME, prometheus.NAMESPACE)
    return lab


def install(lab: Lab, values: Sequence[str] = (), which: Charts = charts.PRESENT) -> None:
    """Both charts by Helm, into a namespace with restricted pod security; the operator runs this tree's image."""
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE, "labels": RESTRICTED}})
    repository, tag = lab.image.rsplit(":", 1)
    release = ("upgrade", "--install", "-n", SYSTEM_NAMESPACE)
    helm(lab.cluster, *release, "kneekeeper-crds", str(which.definitions))
    settings = [
        f"image.repository={repository}",
        f"image.tag={tag}",
        "image.pullPolicy=Never",
        f"prometheus.url={prometheus.URL}",
        *values,
    ]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    helm(lab.cluster, *release, "kneekeeper", str(which.operator), "--wait", "--timeout", "120s", *flags)
