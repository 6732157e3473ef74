"""Image archives written without a container engine, and their import into the nodes."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.commands import find_program, run
from e2e.cluster.spec import Node

PAUSE_IMAGE = "localhost/pause:1"
"""The sandbox of every pod."""

HOSTROOT_IMAGE = "localhost/hostroot:1"
"""Almost empty: a pod mounts the machine's own /usr, and what else it needs, read-only into it."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The kernel's names and the image format's."""


@dataclass(frozen=True)
class ImageContent:
    """An image of one layer."""

    name: str
    """With registry and tag, such as localhost/pause:1."""
    files: tuple[tuple[Path, str], ...] = ()
    """Executables: where they are and their path in the image."""
    folders: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links: their path and what they point to."""
    entrypoint: tuple[str, ...] = ()


def hostroot_image() -> ImageContent:
    """The empty image with the folders that pods mount the machine's files on."""
    merged = ("bin", "lib", "lib64", "sbin")
    return ImageContent(
        HOSTROOT_IMAGE,
        folders=("usr", "etc", "tmp", "opt", "var", "root", "vllm", "model"),
        links=tuple((name, f"usr/{name}") for name in merged),
    )


def pause_image(program: Path) -> ImageContent:
    """The sandbox image around the static pause program."""
    return ImageContent(PAUSE_IMAGE, files=((program, "pause"),), entrypoint=("/pause",))


def write_archive(content: ImageContent, target: Path) -> None:
    """Writes a docker-archive that `ctr images import` and `docker load` accept. Same content, same bytes."""
    layer = _layer(content)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(content.entrypoint) or None, "Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
        }
    ).encode()
    config_name = f"{_digest(config)}.json"
    manifest: list[dict[str, Any]] = [
        {"Config": config_name, "RepoTags": [content.name], "Layers": ["layer.tar"]},
    ]
    with tarfile.open(target, "w") as archive:
        _add_bytes(archive, config_name, config)
        _add_bytes(archive, "layer.tar", layer)
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def import_archive(archive: Path, nodes: Sequence[Node]) -> None:
    """Makes the archive's images known on every node. Raises `CommandFailed` when one refuses it."""
    for node in nodes:
        run([find_program("ctr"), "-a", node.socket, "-n", "k8s.io", "images", "import", archive])


def _layer(content: ImageContent) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in content.folders:
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        for path, link_target in content.links:
            entry = tarfile.TarInfo(path)
            entry.type = tarfile.SYMTYPE
            entry.linkname = link_target
            layer.addfile(entry)
        for source, path in content.files:
            _add_bytes(layer, path, source.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
