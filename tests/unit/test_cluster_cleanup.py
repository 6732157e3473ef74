"""What a cluster leaves is found by what is its own, never by a broad name."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import cgroups, leftovers
from e2e.cluster.cgroups import container_ids, remove_cgroups
from e2e.cluster.cleanup import mounts_below
from e2e.cluster.leftovers import (
    folders_to_make,
    remove_empty_folders,
    remove_leftovers,
    sandboxes,
    shim_socket,
)
from e2e.cluster.paths import State
from e2e.cluster.spec import Node

_MOUNTINFO = """\
21 1 8:1 / / rw - ext4 /dev/root rw
30 21 0:5 / /s/nodes/1/run/rootfs rw - overlay overlay rw
31 30 0:6 / /s/nodes/1/run/rootfs/dev rw - tmpfs tmpfs rw
32 21 0:7 / /s-other/nodes rw - tmpfs tmpfs rw
33 21 0:8 / /s/with\\040blank rw - tmpfs tmpfs rw
"""


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


@pytest.fixture
def node(state: State) -> Node:
    return Node(1, state.nodes / "1")


def test_mounts_below_a_folder_come_last_mounted_first():
    assert mounts_below(Path("/s"), _MOUNTINFO) == (
        "/s/with blank",
        "/s/nodes/1/run/rootfs/dev",
        "/s/nodes/1/run/rootfs",
    )


def test_folders_that_are_there_already_are_not_ours_to_remove(tmp_path: Path):
    (tmp_path / "old").mkdir()
    assert folders_to_make((tmp_path / "old", tmp_path / "new")) == (tmp_path / "new",)


def test_empty_folders_go_and_full_ones_stay(tmp_path: Path):
    (tmp_path / "top" / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "top" / "full").mkdir()
    (tmp_path / "top" / "full" / "file").touch()
    assert not remove_empty_folders(tmp_path / "top")
    assert [entry.name for entry in (tmp_path / "top").iterdir()] == ["full"]
    (tmp_path / "top" / "full" / "file").unlink()
    assert remove_empty_folders(tmp_path / "top")


def test_sandboxes_are_read_from_the_addresses_they_hold(node: Node):
    assert sandboxes(node) == frozenset()
    pool = node.folder / "ipam" / "pods-1"
    pool.mkdir(parents=True)
    (pool / "10.244.0.2").write_text("abc\r\neth0")
    (pool / "10.244.0.3").write_text("def\neth0")
    (pool / "last_reserved_ip.0").write_text("10.244.0.3")
    (pool / "lock").touch()
    assert sandboxes(node) == {"abc", "def"}


def test_only_the_clusters_own_files_leave_the_shared_folders(
    state: State, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logs, results, sockets = (tmp_path / name for name in ("logs", "results", "sockets"))
    for folder in (logs, results, sockets):
        folder.mkdir()
    monkeypatch.setattr(leftovers, "_CONTAINER_LOGS", logs)
    monkeypatch.setattr(leftovers, "_CNI_RESULTS", results)
    monkeypatch.setattr(leftovers, "_SHIM_SOCKETS", sockets)
    (node.folder / "ipam" / "pods-1").mkdir(parents=True)
    (node.folder / "ipam" / "pods-1" / "10.244.0.2").write_text("mine\neth0")
    (logs / "mine.log").symlink_to(node.folder / "pod-logs" / "0.log")
    (logs / "other.log").symlink_to(tmp_path / "elsewhere" / "0.log")
    (results / "pods-1-mine-eth0").touch()
    (results / "pods-1-other-eth0").touch()
    shim_socket(node, "mine").touch()
    shim_socket(node, "other").touch()
    remove_leftovers(state, [node], made=[logs, results, sockets])
    assert [entry.name for entry in logs.iterdir()] == ["other.log"]
    assert [entry.name for entry in results.iterdir()] == ["pods-1-other-eth0"]
    assert list(sockets.iterdir()) == [shim_socket(node, "other")]


def test_containers_are_those_with_a_bundle(node: Node):
    assert container_ids(node) == frozenset()
    (node.folder / "run" / "io.containerd.runtime.v2.task" / "k8s.io" / "abc").mkdir(parents=True)
    assert container_ids(node) == {"abc"}


def test_only_the_named_containers_lose_their_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cgroups, "cgroup_roots", lambda: (tmp_path / "cpu", tmp_path / "memory"))
    for controller in ("cpu", "memory"):
        for container in ("mine", "other"):
            (tmp_path / controller / "k8s.io" / container).mkdir(parents=True)
    remove_cgroups({"mine"}, patience_s=1)
    assert sorted(str(left.relative_to(tmp_path)) for left in tmp_path.glob("*/*/*")) == [
        "cpu/k8s.io/other",
        "memory/k8s.io/other",
    ]
    remove_cgroups({"other"}, patience_s=1)
    assert list(tmp_path.glob("*/*")) == []
