"""The address of a server as a user writes it, and the certificates to trust."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.fields import in_one_line


def check_address(url: str) -> None:
    """That it names a host, and a port and a root path if any. Raises CannotError."""
    wrong = CannotError(f"--url: {url.rpartition('@')[2]!r} is not like http://127.0.0.1:8000")
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if parts.username is not None:
        raise CannotError("--url: leave out the user and password before the @, which the server does not ask for")
    if not named or parts.query or parts.fragment or any(char.isspace() for char in url):
        raise wrong


def check_certificates(file: Path | None) -> None:
    """That the file can be read and holds some. Raises CannotError."""
    if file is None:
        return
    if not file.is_file():
        raise CannotError(f"--ca-file: {file} is no file")
    try:
        ssl.create_default_context(cafile=str(file))
    except ssl.SSLError:
        raise CannotError(
            f"--ca-file: {file} holds no certificates in PEM form (-----BEGIN CERTIFICATE-----)"
        ) from None
    except OSError as error:
        raise CannotError(f"--ca-file: {file} cannot be read: {in_one_line(error)}") from error
