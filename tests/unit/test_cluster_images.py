"""Image archives are written without an engine, and the same content gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from e2e.cluster.images import HOSTROOT_IMAGE, ImageContent, hostroot_image, pause_image, write_archive


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_an_archive_names_its_image_and_its_digests_are_right(tmp_path: Path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    write_archive(pause_image(program), tmp_path / "pause.tar")
    with tarfile.open(tmp_path / "pause.tar") as archive:
        (manifest,) = json.loads(_read(archive, "manifest.json"))
        config_bytes = _read(archive, manifest["Config"])
        (layer_name,) = manifest["Layers"]
        layer = _read(archive, layer_name)
    config = json.loads(config_bytes)
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    assert manifest["Config"] == hashlib.sha256(config_bytes).hexdigest() + ".json"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/pause"]


def test_files_are_executable_and_folders_and_links_are_there(tmp_path: Path):
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    content = ImageContent("localhost/x:1", files=((program, "bin/x"),), folders=("tmp", "etc"), links=(("b", "bin"),))
    write_archive(content, tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as archive:
        layer = archive.extractfile("layer.tar")
        assert layer is not None
        with tarfile.open(fileobj=layer) as inside:
            assert inside.getmember("bin/x").mode == 0o755
            assert inside.getmember("tmp").mode == 0o1777
            assert inside.getmember("etc").isdir()
            assert inside.getmember("b").linkname == "bin"


def test_the_same_content_gives_the_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        write_archive(hostroot_image(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_host_image_starts_nothing_by_itself():
    assert hostroot_image().entrypoint == ()
    assert hostroot_image().name == HOSTROOT_IMAGE
