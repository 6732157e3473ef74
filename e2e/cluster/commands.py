"""Running other programs: one place that captures their output and turns failures into `CommandFailed`."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError, CommandFailed

_SHOWN_OUTPUT_CHARS = 4000
"""How much of a failed command's output its error shows: enough for a Go compiler error or a stack's top."""

_PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    extra_env: dict[str, str] | None = None,
    timeout_s: float = 600,
) -> str:
    """Runs a command to its end and returns its standard output.

    Raises `CommandFailed` when it cannot be started, exits with an error or takes longer than `timeout_s`.
    """
    arguments = [str(argument) for argument in argv]
    shown = shlex.join(arguments)
    try:
        done = subprocess.run(
            arguments,
            input=stdin,
            cwd=cwd,
            env=os.environ | (extra_env or {}),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as missing:
        raise CommandFailed(
            f"{arguments[0]} is not on this machine; run `python -m e2e.cluster prepare` as root"
        ) from missing
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(f"`{shown}` did not end within {timeout_s:g} s; run it by hand to see why") from late
    if done.returncode != 0:
        output = (done.stderr + done.stdout).strip()[-_SHOWN_OUTPUT_CHARS:]
        raise CommandFailed(f"`{shown}` ended with {done.returncode}; fix what it says and try again:\n{output}")
    return done.stdout


def find_program(name: str) -> Path:
    """The path of an installed program, also where a user's PATH leaves out the sbin folders."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise ClusterError(f"{name} is not on this machine; run `python -m e2e.cluster prepare` as root")
    return Path(found)


def search_path() -> str:
    """PATH with the administration folders, where runc, nft and ip may live."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"])


def clean_environment() -> dict[str, str]:
    """This process's environment without what would lead a cluster component astray.

    A proxy would stand between parts of one machine, and KUBECONFIG would point at some other cluster.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in _PROXY_VARIABLES and name != "KUBECONFIG"
    }
    return kept | {"PATH": search_path()}
