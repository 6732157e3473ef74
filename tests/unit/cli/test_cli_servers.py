"""The address of a server, and certificates, as a user gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.servers import check_address, check_certificates


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "https://llm.example.com", "http://[::1]:8000/", "http://host/root/v1"]
)
def test_an_address_names_a_host_and_perhaps_a_port_and_a_root_path(url: str):
    check_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8000",
        "http://",
        "ftp://host",
        "http://host:99999",
        "http://[::1",
        "http://h?a=1",
        "http://h#a",
        "http://h h",
    ],
)
def test_anything_else_is_told_with_an_example(url: str):
    with pytest.raises(CannotError, match=r"is not like http://127\.0\.0\.1:8000"):
        check_address(url)


@pytest.mark.parametrize("url", ["http://me:s3cret@host:8000", "ftp://me:s3cret@host", "http://me:s3cret@host:0"])
def test_a_password_is_neither_used_nor_shown(url: str):
    with pytest.raises(CannotError) as told:
        check_address(url)
    assert "s3cret" not in str(told.value)


def test_a_file_without_certificates_is_named(tmp_path: Path):
    check_certificates(None)
    (tmp_path / "empty.pem").write_text("")
    for name, told in (("empty.pem", "holds no certificates"), ("absent.pem", "is no file")):
        with pytest.raises(CannotError, match=f"--ca-file: .*{name} {told}"):
            check_certificates(tmp_path / name)
