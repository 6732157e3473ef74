"""Certificates for servers of the tests, made anew each time by openssl."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Signed by itself, so that it is its own bundle of certificates to trust."""

    file: Path
    server: ssl.SSLContext


def self_signed(folder: Path, name: str) -> Certificate:
    """A certificate for the DNS name `name`, with its key in `folder`."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(folder / "key"), "-out", str(folder / "crt"), "-days", "2", "-subj", "/CN=engine"]
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{name}"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    return Certificate(folder / "crt", context)
