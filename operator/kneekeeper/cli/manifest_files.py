"""Reading of manifest files for the commands that work on them."""

from __future__ import annotations

import sys
from pathlib import Path

from kneekeeper.cli.ending import CannotError
from kneekeeper.domain.manifests import ManifestFile, NotAManifestError, read_manifests


def read_file(name: str) -> ManifestFile:
    """The objects of a file, or of standard input for `-`. Raises CannotError."""
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return read_manifests(content.decode())
    except OSError as error:
        raise CannotError(f"{name} cannot be read: {error.strerror}. Check the path of --file.") from error
    except UnicodeDecodeError as error:
        raise CannotError(f"{name} is no UTF-8 text. Save it as UTF-8.") from error
    except NotAManifestError as error:
        raise CannotError(f"{name}: {error}") from error
