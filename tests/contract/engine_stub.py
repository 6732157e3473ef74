"""What vLLM receives of a container: its words are expanded as the kubelet does and run by real shells with stubs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kneekeeper.domain.arguments.expansion import expand

ENGINES = ("vllm", "python", "python3")
TIMEOUT_S = 20


class Stubs:
    """A folder of programs: the engines write their words down, all others do nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = folder / "received"
        (folder / "env").symlink_to("/usr/bin/env")
        for engine in ENGINES:
            self._write(engine, f'printf "%s\\0" "${{0##*/}}" "$@" >> {self._out}\n')

    def add(self, *programs: str) -> None:
        for program in programs:
            self._write(program, ":\n")

    def received(self, command: Sequence[str] | None, args: Sequence[str] | None, env: Mapping[str, str]) -> list[str]:
        """The words of all engines that were started, program first; the image's entrypoint is `vllm serve`."""
        words = [expand(word, env).text for word in (*(command or ()), *(args or ()))]
        if not command and words[0].startswith("-"):
            words = ["vllm", "serve", *words]
        self._out.unlink(missing_ok=True)
        path = str(self._folder)
        shell = words[0].rpartition("/")[2] in ("sh", "bash")
        program = f"/bin/{words[0].rpartition('/')[2]}" if shell else str(self._folder / words[0])
        subprocess.run(
            [program, *words[1:]],
            env={**env, "PATH": path},
            cwd=self._folder,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return self._out.read_text().split("\0")[:-1] if self._out.exists() else []

    def _write(self, name: str, body: str) -> None:
        path = self._folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        os.chmod(path, 0o755)
