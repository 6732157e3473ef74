"""Both charts from install to uninstall by real Helm at a real API server, coming from those of the version before.

No pod runs here: what the job of the uninstall would do is done with its words and its permissions. With pods:
`e2e/wide/test_charts.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from e2e.charts import PRESENT, PREVIOUS, ROOT, everything, helm
from e2e.cluster import control_plane
from e2e.cluster.control_plane import ApiServer
from e2e.cluster.pki import service_account
from e2e.cluster.start import kubectl
from kneekeeper.domain.names import FINALIZER
from tests.contract.test_docs_commands import commands, words_of
from tests.integration.foreign_kinds import definition
from tests.unit.cli import recorded

pytestmark = pytest.mark.timeout(300)  # a dozen programs one after the other, on machines that others use too

OPERATOR = "kneekeeper-system"
STORED = {"sp": "chat", "tr": "chat-by-hand"}

Object = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """A cluster with a profile and a run in one of its namespaces."""

    server: ApiServer
    namespace: str = "team"

    def helm(self, *arguments: str) -> str:
        return helm(self.server.kubeconfig, *arguments)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return kubectl(self.server.kubeconfig, *arguments, stdin=text)

    def type(self, verb: str, release: str, *more: str) -> None:
        """Helm's command, as the page of installing and upgrading has it."""
        beginning = f"helm {verb} {release} "
        (line,) = [line for page, line in commands() if page == "upgrade.md" and f"{line} ".startswith(beginning)]
        self.helm(*words_of(line)[1:], *more)

    def store(self) -> None:
        """A profile and a run that has ended, as an operator leaves them."""
        for example in ("quickstart", "run-by-hand"):
            self.kubectl("apply", "-n", self.namespace, "-f", str(ROOT / f"examples/{example}.yaml"))
        for (kind, name), body in zip(STORED.items(), recorded.objects(), strict=True):
            found = ("-n", self.namespace, "patch", kind, name, "--type=merge", "-p")
            self.kubectl(*found, json.dumps({"status": body["status"]}), "--subresource=status")

    def hold(self) -> None:
        """As an operator that may not miss their end."""
        for kind, name in STORED.items():
            patch = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
            self.kubectl("-n", self.namespace, "patch", kind, name, "--type=merge", "-p", patch)

    def stored(self) -> list[Object]:
        found = [self._get(kind, name) for kind, name in STORED.items()]
        return [{"uid": each["metadata"]["uid"], "spec": each["spec"], "status": each["status"]} for each in found]

    def finalizers(self) -> list[str]:
        return [f for kind, name in STORED.items() for f in self._get(kind, name)["metadata"].get("finalizers", [])]

    def version(self) -> str:
        found = json.loads(self.kubectl("-n", OPERATOR, "get", "deployment", "kneekeeper", "-o", "json"))
        chart: str = found["metadata"]["labels"]["helm.sh/chart"]
        return chart.removeprefix("kneekeeper-")

    def release_finalizers(self) -> None:
        """What the job before an uninstall does, as its ServiceAccount."""
        (job,) = yaml.safe_load_all(self.helm("get", "hooks", "kneekeeper", "-n", OPERATOR))
        pod = job["spec"]["template"]["spec"]
        account = self.server.kubeconfig_of("uninstall", service_account(OPERATOR, pod["serviceAccountName"]))
        subprocess.run(
            [sys.executable, "-m", *pod["containers"][0]["args"]],
            env={**os.environ, "KUBECONFIG": str(account)},
            check=True,
            timeout=60,
        )

    def _get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.kubectl("-n", self.namespace, "get", kind, name, "-o", "json"))
        return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """With the definitions of the version before, and what was stored under them."""
    with control_plane() as server:
        site = Site(server)
        for namespace in (site.namespace, OPERATOR):
            site.kubectl("create", "namespace", namespace)
        site.helm("install", "kneekeeper-crds", str(PREVIOUS.definitions))
        site.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
        site.store()
        yield site


def is_kept(before: object, now: object) -> bool:
    """Nothing of it is lost or changed; defaults of a newer version may have come."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and is_kept(value, now[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(is_kept, before, now))
    return before == now


def test_what_is_stored_survives_newer_definitions_and_the_way_back(site):
    before = site.stored()
    site.type("upgrade", "kneekeeper-crds")
    upgraded = site.stored()
    assert is_kept(before, upgraded)
    site.type("rollback", "kneekeeper-crds")
    assert site.stored() == before
    site.type("upgrade", "kneekeeper-crds")
    assert site.stored() == upgraded


@pytest.mark.parametrize(
    "values",
    [[], ["watchNamespaces={team}", "rbac.clusterReads=false"]],
    ids=["the whole cluster", "one namespace and nothing of the cluster"],
)
def test_an_operator_is_upgraded_rolled_back_and_uninstalled_without_a_trace(site, values):
    site.hold()
    stored, before = site.stored(), everything(site.kubectl)
    flags = [flag for value in values for flag in ("--set", value)]
    site.helm("install", "kneekeeper", str(PREVIOUS.operator), "-n", OPERATOR, *flags)
    assert site.version() == PREVIOUS.version
    site.type("upgrade", "kneekeeper")
    assert site.version() == PRESENT.version
    site.type("rollback", "kneekeeper")
    assert site.version() == PREVIOUS.version
    site.type("upgrade", "kneekeeper")
    site.release_finalizers()
    assert site.finalizers() == []
    site.type("uninstall", "kneekeeper", "--no-hooks")
    assert everything(site.kubectl) == before
    assert site.stored() == stored


def test_every_other_documented_command_of_helm_works_and_definitions_go_where_that_is_asked_for(site):
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    monitors = [definition("monitoring.coreos.com/v1", kind) for kind in kinds]
    site.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(monitors))
    site.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
    site.type("install", "kneekeeper")
    typed = {line for page, line in commands() if page != "upgrade.md" and line.startswith("helm upgrade ")}
    assert len(typed) >= 4
    for line in sorted(typed):
        site.helm(*words_of(line)[1:])
    made = site.kubectl("-n", OPERATOR, "get", "services,prometheusrules", "-o", "name")
    assert "service/kneekeeper-dashboard" in made
    assert "prometheusrule.monitoring.coreos.com/kneekeeper" in made
    site.type("uninstall", "kneekeeper", "--no-hooks")
    site.type("uninstall", "kneekeeper-crds")
    assert "servingprofiles.kneekeeper.io" in site.kubectl("get", "crd", "-o", "name")
    site.type("install", "kneekeeper-crds", "--set", "keep=false")
    site.type("uninstall", "kneekeeper-crds", "--wait")
    assert "kneekeeper.io" not in site.kubectl("get", "crd", "-o", "name")
