"""A witness of one object: every change of it while a test runs, by whom, and where in it.

The API server's audit log tells who wrote what object, without bodies; a watch tells every version of it. Together
they prove that nothing else was written.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from e2e.cluster.audit import ApiCall, read_calls
from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.lab import SYSTEM_NAMESPACE, Lab, Object

OPERATOR = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"

_KEPT_BY_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_KEPT_BY_CONTROLLERS = ("deployment.kubernetes.io/revision",)
_CHILDREN = ("configmaps", "events", "jobs", "pods", "secrets", "servingprofiles", "tuningruns")
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class Change:
    """From one version of an object to the next, status and server's fields left out."""

    writers: frozenset[str]
    """Field managers that the API server names for it."""
    paths: tuple[str, ...]
    """Where it differs, as in RFC 6901; a list of plain values differs as a whole."""


@dataclass(frozen=True)
class Witness:
    """What a watch has written down so far."""

    lab: Lab
    kind: str
    name: str
    namespace: str
    record: Path

    def changes(self) -> list[Change]:
        """All changes up to now, in order. Raises TimeoutError where the watch lags, AssertionError where it broke."""
        now = int(self.lab.get(self.kind, self.name, self.namespace)["metadata"]["resourceVersion"])

        def versions() -> list[Object] | None:
            seen = read_versions(self.record.read_text())
            return seen if seen and _version(seen[-1]) >= now else None

        found: list[Object] = self.lab.wait(
            f"the watch of {self.kind} {self.name}", versions, timeout_s=20, every_s=0.2
        )
        return changes_between(found)

    def by(self, writer: str) -> list[Change]:
        """Those of one field manager."""
        return [change for change in self.changes() if writer in change.writers]


@contextmanager
def watching(lab: Lab, kind: str, name: str, namespace: str) -> Iterator[Witness]:
    """A witness of an object that exists, from now until the end of the block."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as record:
        command = [
            *(str(ensure_built(KUBERNETES) / "kubectl"), "--kubeconfig", str(lab.cluster.kubeconfig)),
            *("-n", namespace, "get", kind, name, "-o", "json"),
            *("--watch", "--output-watch-events", "--show-managed-fields"),
        ]
        process = subprocess.Popen(command, stdout=record)
        try:
            seen = Witness(lab, kind, name, namespace, Path(record.name))
            lab.wait("the first event", lambda: read_versions(seen.record.read_text()), timeout_s=20, every_s=0.2)
            yield seen
        finally:
            process.terminate()
            process.wait(timeout=20)


def read_versions(text: str) -> list[Object]:
    """The objects of a stream of watch events; one that is still being written is left out."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Object] = []
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        found.append(event["object"])
    return found


def changes_between(versions: Sequence[Object]) -> list[Change]:
    """The changes from each version to the next. Raises AssertionError where a version of the spec is missing."""
    found: list[Change] = []
    for before, after in pairwise(versions):
        step = int(after["metadata"].get("generation", 0)) - int(before["metadata"].get("generation", 0))
        assert step in (0, 1), f"{step - 1} versions of the spec were not seen"
        paths = tuple(sorted(_differences(_plain(before), _plain(after), "")))
        if paths:
            found.append(Change(_writers(before, after), paths))
    return found


def writes_of_operator(lab: Lab, namespace: str) -> list[str]:
    """What the operator wrote in a namespace beside its own objects, as "patch deployments/chat", in order.

    Made objects are all its own; those of its kinds that it wrote are told apart by their names, which begin with
    their run's.
    """
    calls = [call for call in read_calls(lab.cluster.audit_log) if call.namespace == namespace]
    runs = {call.name for call in calls if call.resource.partition("/")[0] == "tuningruns" and call.name}
    return [f"{call.verb} {call.resource}/{call.name}" for call in calls if _is_write_to_others(call, runs)]


def _is_write_to_others(call: ApiCall, runs: Iterable[str]) -> bool:
    if not call.user.startswith(OPERATOR) or call.verb not in _WRITES or call.status_code >= 300:
        return False
    resource = call.resource.partition("/")[0]
    if resource in ("servingprofiles", "tuningruns"):
        return False
    own = call.verb == "create" or any(call.name.startswith(f"{run}-") for run in runs)
    return not (own and resource in _CHILDREN)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _plain(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _KEPT_BY_THE_SERVER}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: value for key, value in annotations.items() if key not in _KEPT_BY_CONTROLLERS}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from _differences(one.get(key), other.get(key), f"{path}/{str(key).replace('/', '~1')}")
    elif _lists_of_objects(one, other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, f"{path}/{index}")
    elif one != other:
        yield path


def _lists_of_objects(one: Any, other: Any) -> bool:
    both = isinstance(one, list) and isinstance(other, list)
    return both and len(one) == len(other) and all(isinstance(item, Mapping) for item in (*one, *other))


def _writers(before: Object, after: Object) -> frozenset[str]:
    """Managers with an entry that is new, or newer. One that only lost fields to another keeps its time."""
    known = {_entry(each): each for each in before["metadata"].get("managedFields") or []}
    return frozenset(
        str(each["manager"])
        for each in after["metadata"].get("managedFields") or []
        if each.get("subresource") != "status" and _wrote(known.get(_entry(each)), each)
    )


def _entry(managed: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(managed.get(key, "")) for key in ("manager", "operation", "subresource", "apiVersion"))


def _wrote(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    return before is None or before.get("time") != after.get("time")
