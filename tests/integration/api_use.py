"""What a user may do by the chart's rules, and what it did by the API server's audit log."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from e2e.cluster.audit import ApiCall, read_calls
from e2e.cluster.binaries import HELM, ensure_built

ROOT = Path(__file__).parents[2]
KUBERNETES_VERSION = "1.34.4"
RELEASE = "kneekeeper"
"""The release's name and, by the chart's naming, the operator's ServiceAccount."""

_INSTALLED = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PriorityClass")


class Permission(NamedTuple):
    """One verb on one resource; subresources are resources of their own."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def render_chart(namespace: str, watch_namespaces: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The objects that the operator lives by, for a release in this namespace; the uninstall job's are left out."""
    done = subprocess.run(
        [
            str(ensure_built(HELM) / "helm"),
            *("template", RELEASE, str(ROOT / "charts" / "kneekeeper"), "--namespace", namespace),
            *("--kube-version", KUBERNETES_VERSION, "--values", "-"),
        ],
        input=json.dumps({"watchNamespaces": list(watch_namespaces), "releaseFinalizers": False}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document and document["kind"] in _INSTALLED]


def granted(objects: Iterable[dict[str, Any]]) -> set[Permission]:
    """Every permission of the roles among these objects."""
    return {
        Permission(group, resource, verb)
        for role in objects
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def permission_of(call: ApiCall) -> Permission | None:
    """The permission that the call used; None for a path that is no resource."""
    if not call.resource:
        return None
    parts = call.uri.partition("?")[0].split("/")
    return Permission(parts[2] if parts[1] == "apis" else "", call.resource, call.verb)


def is_counted(call: ApiCall) -> bool:
    """Counts each call once: a watch when it starts, all others when they are answered."""
    return call.stage == ("ResponseStarted" if call.verb == "watch" else "ResponseComplete")


def calls_of(audit_log: Path, user: str) -> Iterator[ApiCall]:
    """Each call of the user, once."""
    return (call for call in read_calls(audit_log) if call.user == user and is_counted(call))
