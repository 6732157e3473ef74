"""Certificates name whom they should, and kubeconfigs carry all that they need."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from e2e.cluster.commands import run
from e2e.cluster.pki import CLIENT_ONLY, Authority, Identity, ServerNames, certificate_arguments, service_account


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "pki", "https://127.0.0.1:6443")
    made.create()
    return made


def test_groups_come_before_the_user_in_a_subject():
    assert Identity("ann", ("dev", "ops")).subject == "/O=dev/O=ops/CN=ann"


def test_separators_in_names_are_escaped():
    assert Identity("a/b+c\\d").subject == "/CN=a\\/b\\+c\\\\d"


def test_a_service_account_has_the_groups_of_its_tokens():
    assert service_account("serving", "agent") == Identity(
        "system:serviceaccount:serving:agent",
        ("system:serviceaccounts", "system:serviceaccounts:serving", "system:authenticated"),
    )


def test_a_client_certificate_is_no_server_certificate():
    arguments = certificate_arguments(Identity("ann"), CLIENT_ONLY, Path("ca"), Path("c"), Path("k"))
    assert "extendedKeyUsage=clientAuth" in arguments
    assert not any(argument.startswith("subjectAltName") for argument in arguments)


def test_a_server_certificate_holds_for_its_names():
    names = ServerNames(dns=("node-1",), ips=("10.0.0.1", "10.0.0.2"))
    arguments = certificate_arguments(Identity("kubelet"), names, Path("ca"), Path("c"), Path("k"))
    assert "subjectAltName=DNS:node-1,IP:10.0.0.1,IP:10.0.0.2" in arguments
    assert "extendedKeyUsage=clientAuth,serverAuth" in arguments


def test_a_signed_certificate_is_trusted_and_says_who_it_is(authority: Authority):
    certificate, key = authority.sign("ann", Identity("ann/x", ("ops",)), ServerNames(ips=("127.0.0.1",)))
    run(["openssl", "verify", "-CAfile", authority.certificate, certificate])
    shown = run(["openssl", "x509", "-in", certificate, "-noout", "-subject", "-ext", "subjectAltName"])
    assert "O = ops" in shown
    assert "CN = ann/x" in shown
    assert "127.0.0.1" in shown
    assert "PRIVATE KEY" in key.read_text()


def test_a_kubeconfig_can_be_moved_and_is_for_its_owner_only(authority: Authority):
    file = authority.kubeconfig("ann", Identity("ann"))
    config = yaml.safe_load(file.read_text())
    assert file.stat().st_mode & 0o077 == 0
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    embedded = {
        config["clusters"][0]["cluster"]["certificate-authority-data"]: authority.certificate,
        config["users"][0]["user"]["client-certificate-data"]: authority.folder / "ann.crt",
        config["users"][0]["user"]["client-key-data"]: authority.folder / "ann.key",
    }
    for data, source in embedded.items():
        assert base64.b64decode(data) == source.read_bytes()
    assert config["current-context"] in {context["name"] for context in config["contexts"]}
