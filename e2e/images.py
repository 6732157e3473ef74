"""The images of the tests and the demo, built on this machine: `python -m e2e.images`.

The base comes from debootstrap and the machine's own package mirror, the operator image from the project's
Dockerfile and wheels, Prometheus from Debian's package. Each is a docker-archive in the cache, named by a hash
of what went into it, so that only a change builds again. Nothing is fetched inside a build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.apt_sources import debian_mirror
from e2e.cluster.commands import find_program, run
from e2e.cluster.locks import exclusive
from e2e.cluster.packages import ensure_packages
from e2e.cluster.paths import cache_dir
from e2e.cluster.progress import told

ROOT = Path(__file__).parents[1]

_SUITE = "bookworm"
_BASE_PACKAGES = ("ca-certificates", "python3")
_PYTHON = "3.11"
"""What the suite brings as python3."""

_BASE_RECIPE = "FROM scratch\nADD base.tar /\n"
_BASE_TRIM = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "var/cache", "var/lib/apt/lists")
_PROMETHEUS_RECIPE = """\
ARG BASE
FROM ${BASE}
COPY prometheus promtool /usr/bin/
USER 65534:65534
ENTRYPOINT ["/usr/bin/prometheus"]
"""

_PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap", "prometheus": "prometheus"}
"""The programs that build images, or go into one, and the Debian packages that bring them."""

_KEPT_ARCHIVES = 3
"""How many archives of one image stay in the cache, so that going back and forth between commits is cheap."""


Context = dict[str, bytes]
"""A build context: file contents by path. Held in memory, since the largest has 120 MB."""


@dataclass(frozen=True)
class Image:
    """An image as a pod names it, and the docker-archive that a node imports."""

    name: str
    archive: Path


def operator_image() -> Image:
    """The image of this work tree: operator, load agent and simulated engine.

    Raises `ClusterError` with the next step where a tool is missing or the build fails.
    """
    # Read once: what is hashed is what is built, also while someone edits.
    context = _read([ROOT / "Dockerfile", *_requirements(), *_sources()])
    return _image("kneekeeper", _digest(_base_key(), context), lambda name: _build_operator(name, context))


def prometheus_image() -> Image:
    """Debian's Prometheus with promtool, on the base. Raises as `operator_image` does."""
    ensure_packages(_PROGRAMS)
    context = {"Dockerfile": _PROMETHEUS_RECIPE.encode()} | {
        program: find_program(program).read_bytes() for program in ("prometheus", "promtool")
    }
    return _image("kneekeeper-prometheus", _digest(_base_key(), context), lambda name: _bud(name, context, _base()))


def rebuilt(image: Image) -> Image:
    """The same files in an image of another digest, as a new release of an engine would have."""
    context = {"Dockerfile": f'FROM {image.name}\nLABEL release="another"\n'.encode()}
    return _image("kneekeeper-rebuilt", _digest(context), lambda name: _bud(name, context))


def _image(repository: str, key: str, build: Callable[[str], None]) -> Image:
    image = Image(f"localhost/{repository}:{key}", _folder() / f"{repository}-{key}.tar")
    with exclusive(_folder() / "build.lock"):
        if not image.archive.exists():
            ensure_packages(_PROGRAMS)
            with told(f"Building the image {repository} (once for each version)."):
                build(image.name)
                _export(image)
                _drop_old(repository)
        image.archive.touch()
    return image


def _build_operator(name: str, context: Context) -> None:
    wheels = {f"wheels/{wheel.name}": wheel.read_bytes() for wheel in _wheels().iterdir()}
    _bud(name, context | wheels, _base())


def _base() -> str:
    """The name of the base image in the build store, made now unless it is there."""
    name = f"localhost/kneekeeper-base:{_base_key()}"
    if not _buildah("images", "--quiet", "--filter", f"reference={name}").strip():
        _bud(name, {"Dockerfile": _BASE_RECIPE.encode(), "base.tar": _debootstrap()})
    return name


def _debootstrap() -> bytes:
    """A small Debian with Python, as a tar archive."""
    with tempfile.TemporaryDirectory(prefix=".base-", dir=_folder()) as folder:
        root, archive = Path(folder) / "root", Path(folder) / "base.tar"
        packages = f"--include={','.join(_BASE_PACKAGES)}"
        run([find_program("debootstrap"), "--variant=minbase", packages, _SUITE, root, debian_mirror(_SUITE)])
        for trimmed in (*_BASE_TRIM, "dev"):
            for path in (root / trimmed).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        # Nothing in these images changes its user, so nothing may offer to.
        run(["find", root, "-xdev", "-perm", "/6000", "-type", "f", "-exec", "chmod", "a-s", "{}", "+"])
        run(["tar", "-C", root, "--numeric-owner", "-cf", archive, "."])
        return archive.read_bytes()


def _wheels() -> Path:
    """The folder with the pinned wheels, downloaded by pip unless it is there."""
    folder = _folder() / f"wheels-{_digest(_PYTHON, _read(_requirements()))}"
    if not folder.is_dir():
        unfinished = Path(tempfile.mkdtemp(prefix=".wheels-", dir=_folder()))
        arguments = [argument for path in _requirements() for argument in ("--requirement", path)]
        try:
            run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", unfinished),
                    *("--only-binary", ":all:", "--require-hashes", "--no-deps", "--python-version", _PYTHON),
                    *arguments,
                ]
            )
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _bud(name: str, context: Context, base: str | None = None) -> None:
    arguments = [] if base is None else ["--build-arg", f"BASE={base}"]
    with tempfile.TemporaryDirectory(prefix=".context-", dir=_folder()) as folder:
        for path, content in context.items():
            _write(Path(folder) / path, content)
        _buildah("bud", "--isolation", "chroot", "--layers", "--pull-never", *arguments, "--tag", name, folder)


def _export(image: Image) -> None:
    unfinished = image.archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    _buildah("push", "--quiet", image.name, f"docker-archive:{unfinished}:{image.name}")
    unfinished.rename(image.archive)


def _drop_old(repository: str) -> None:
    """Removes all but the last used archives of an image, and their layers that no other image needs."""
    archives = sorted(_folder().glob(f"{repository}-*.tar"), key=lambda path: path.stat().st_mtime)
    archives = [path for path in archives if path.stem.rpartition("-")[0] == repository]
    for archive in archives[:-_KEPT_ARCHIVES]:
        archive.unlink()
        tag = f"localhost/{repository}:{archive.stem.rpartition('-')[2]}"
        if _buildah("images", "--quiet", "--filter", f"reference={tag}").strip():
            _buildah("rmi", tag)


def _buildah(*arguments: str) -> str:
    """Runs buildah on a store of its own, so that the machine's images stay as they are."""
    store = ("--root", str(_folder() / "store"), "--runroot", str(_folder() / "run"))
    return run([find_program("buildah"), *store, *arguments])


def _folder() -> Path:
    folder = cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(target: Path, content: bytes) -> None:
    """Writes a file of a context with a fixed mode and time, so that equal content means a cached layer."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o755 if content.startswith((b"\x7fELF", b"#!")) else 0o644)
    os.utime(target, (0, 0))


def _requirements() -> list[Path]:
    return [ROOT / "requirements" / "pip.txt", ROOT / "requirements" / "runtime.txt"]


def _sources() -> list[Path]:
    package = ROOT / "operator" / "kneekeeper"
    return sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _read(paths: Iterable[Path]) -> Context:
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}


def _base_key() -> str:
    return _digest(_SUITE, {"Dockerfile": _BASE_RECIPE.encode()}, *_BASE_PACKAGES, *_BASE_TRIM)


def _digest(*parts: str | Context) -> str:
    """A short hash of words and contexts; each part's length goes in, so that none can pass for another."""
    digest = hashlib.sha256()
    for part in parts:
        for name, content in [(part, b"")] if isinstance(part, str) else part.items():
            for item in (name.encode(), content):
                digest.update(len(item).to_bytes(8, "big") + item)
    return digest.hexdigest()[:12]


def main() -> int:
    """Builds what is missing and prints name and archive of each image."""
    for image in (operator_image(), prometheus_image()):
        print(image.name, image.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
