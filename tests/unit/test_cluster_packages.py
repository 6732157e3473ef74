"""Packages are installed as root only, and their services stay stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import packages
from e2e.cluster.errors import ClusterError
from e2e.cluster.packages import ensure_packages, missing_packages, services_stay_stopped


def test_only_the_packages_of_missing_programs_are_missing():
    assert missing_packages({"sh": "dash", "no-such-program": "no-such-package"}) == ("no-such-package",)


def test_nothing_is_installed_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "install", _fail)
    ensure_packages({"sh": "dash"})


def test_a_user_who_is_not_root_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "install", _fail)
    monkeypatch.setattr("shutil.which", lambda name, path=None: "/usr/bin/apt-get" if name == "apt-get" else None)
    with pytest.raises(ClusterError, match="sudo apt-get install --no-install-recommends etcd-server"):
        ensure_packages({"etcd": "etcd-server"})


def test_services_may_not_start_while_packages_are_installed_and_may_again_after(tmp_path: Path):
    policy = tmp_path / "policy-rc.d"
    with services_stay_stopped(policy):
        assert "exit 101" in policy.read_text()
        assert policy.stat().st_mode & 0o111
    assert not policy.exists()


def test_a_policy_of_the_machines_owner_stays(tmp_path: Path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n# mine\n")
    with services_stay_stopped(policy):
        assert "# mine" in policy.read_text()
    assert "# mine" in policy.read_text()


def _fail(*_: object) -> None:
    raise AssertionError("nothing may be installed")
