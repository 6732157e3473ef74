"""An API server with the operator's identity in it, and what is read from its audit log."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from e2e.cluster import control_plane
from e2e.cluster.audit import ApiCall
from e2e.cluster.control_plane import ApiServer
from e2e.cluster.pki import service_account
from e2e.cluster.processes import ProcessFolder, ProcessRecord
from tests.integration.api_use import RELEASE, ROOT, calls_of, permission_of, render_chart
from tests.integration.operator_process import OperatorProcess, running_operator
from tests.integration.serving import busy_engine, eventually

USER = service_account(RELEASE, RELEASE)
_QUIET_S = 8.0


@dataclass
class OperatorPlace:
    """The API server, and the operator's identity in it."""

    server: ApiServer
    kubeconfig: Path
    engine_port: int
    folder: Path

    @property
    def server_port(self) -> int:
        url = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return int(url.rpartition(":")[2])

    def operator(self, kubeconfig: Path | None = None, **settings: str) -> AbstractContextManager[OperatorProcess]:
        return running_operator(kubeconfig or self.kubeconfig, self.folder / "operator.log", **settings)

    def calls(self, user: str = USER.user) -> list[ApiCall]:
        return list(calls_of(self.server.audit_log, user))

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = ["kubectl", "--kubeconfig", str(self.server.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def api_server_process(self) -> ProcessRecord:
        root = self.server.audit_log.parent
        return next(r for r in ProcessFolder(root / "pids", root / "log").records() if r.name == "kube-apiserver")


@contextmanager
def operator_place(folder: Path) -> Iterator[OperatorPlace]:
    """With the chart's objects, and an engine that answers for all pods."""
    with control_plane() as server, busy_engine() as port:
        place = OperatorPlace(server, server.kubeconfig_of("operator", USER), port, folder)
        place.kubectl("apply", "-f", str(ROOT / "crds"))
        place.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        place.kubectl("create", "namespace", RELEASE)
        place.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(render_chart(RELEASE)))
        yield place


@dataclass(frozen=True)
class Counted:
    """Calls in a window of time."""

    watches: int
    by_namespace: Counter[str]
    by_permission: Counter[str]


def count(calls: list[ApiCall], since: datetime) -> Counted:
    counted = [call for call in calls if call.received_at >= since and call.resource]
    plain = [call for call in counted if call.verb != "watch"]
    return Counted(
        watches=len(counted) - len(plain),
        by_namespace=Counter(call.namespace for call in plain),
        by_permission=Counter(str(permission_of(call)) for call in plain),
    )


async def quiet(place: OperatorPlace, namespace: str) -> None:
    """Returns when nothing was asked about this namespace for a while."""

    async def look() -> bool:
        last = max(
            (c.received_at for c in place.calls() if c.namespace == namespace and c.verb != "watch"), default=None
        )
        return last is not None and (datetime.now(UTC) - last).total_seconds() > _QUIET_S

    await eventually(f"nothing is asked about {namespace}", look)
