"""`python -m kneekeeper.livetune.deliver FOLDER`: the plugin as an installed package in a folder.

The folder on PYTHONPATH is all that vLLM needs: entry points are found by the metadata beside the package.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PACKAGE = "kneekeeper_livetune"
"""Its name there, and the plugin's name in VLLM_PLUGINS."""

VERSION = "1"

_METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE.replace('_', '-')}\nVersion: {VERSION}\n"
_ENTRY_POINTS = f"[vllm.general_plugins]\n{PACKAGE} = {PACKAGE}.plugin:register\n"


def deliver(folder: Path) -> None:
    """Write it, readable by every user; a delivery that was cut off is done again whole. Raises OSError."""
    package, metadata = folder / PACKAGE, folder / f"{PACKAGE}-{VERSION}.dist-info"
    for path in (package, metadata):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        path.chmod(0o755)
    for module in sorted(Path(__file__).parent.glob("*.py")):
        _write(package / module.name, module.read_text())
    # Last: without it vLLM finds nothing.
    _write(metadata / "METADATA", _METADATA)
    _write(metadata / "entry_points.txt", _ENTRY_POINTS)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kneekeeper.livetune.deliver FOLDER")
    deliver(Path(sys.argv[1]))
