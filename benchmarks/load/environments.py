"""A virtual environment for each client, in the cache: installed once from pinned, hashed requirements."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.realvllm.environment import cache_root

REQUIREMENTS = Path(__file__).parent / "requirements"
_INSTALL_TIMEOUT_S = 1800.0
_MARKER = "kneekeeper-complete"


class ClientUnavailable(Exception):
    """A client cannot be installed or run here; the message says what stands in the way."""


@dataclass(frozen=True)
class ClientEnvironment:
    """What one client is made of."""

    name: str
    python: str
    """The oldest Python that the release accepts, such as 3.12."""

    @property
    def requirements(self) -> Path:
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def version(self) -> str:
        """The pinned release."""
        for line in self.requirements.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{self.name}=="):
                return line.removeprefix(f"{self.name}==").split()[0]
        raise ClientUnavailable(f"{self.requirements} does not pin {self.name}; compile it again")

    def prepare(self) -> Path:
        """The folder with the client's programs, installed now unless the cache has them.

        An install that breaks off is not marked complete and begins anew. Raises ClientUnavailable.
        """
        digest = hashlib.sha256(self.requirements.read_bytes()).hexdigest()
        venv = cache_root() / f"bench-{self.name}-{digest[:10]}"
        venv.parent.mkdir(parents=True, exist_ok=True)
        with venv.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (venv / _MARKER).is_file():
                self._install(venv)
        return venv / "bin"

    def _install(self, venv: Path) -> None:
        shutil.rmtree(venv, ignore_errors=True)
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--python", find_python(self.python), str(venv)])
        install = [*uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--compile-bytecode"]
        _run([*install, "--python", str(venv / "bin" / "python"), "--requirement", str(self.requirements)])
        (venv / _MARKER).touch()


def find_python(version: str) -> str:
    """An interpreter of that version: this one, one on the path, or one of pyenv. Raises ClientUnavailable."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    candidates = [shutil.which(f"python{version}")]
    candidates += map(str, sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")))
    for candidate in filter(None, candidates):
        # A shim of pyenv is on the path for every version that it knows, and works for those that are chosen.
        if subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0:
            return candidate
    raise ClientUnavailable(f"there is no Python {version} on this machine; install it and put it on PATH")


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        raise ClientUnavailable(f"`{' '.join(command[:5])} …` did not end in {late.timeout:.0f} s") from late
    if done.returncode != 0:
        said = done.stderr.strip()[-500:]
        raise ClientUnavailable(f"`{' '.join(command[:5])} …` ended with {done.returncode}: {said}")
