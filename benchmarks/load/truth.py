"""The server that knows the truth: built, started, told its pace, and asked what really happened."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from e2e.realvllm.environment import cache_root

_SOURCE = Path(__file__).parent / "truthserver"
_ANSWER_TIMEOUT_S = 10.0

Floats = NDArray[np.float64]


class TruthServerError(Exception):
    """The server cannot be built or started; the message says why."""


@dataclass(frozen=True)
class Plan:
    """The pace of the answers. A `spread` of 0.5 draws each time from 50% to 150% of its mean; 0 keeps it fixed."""

    ttft_ms: float
    tpot_ms: float
    spread: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Truth:
    """What happened to the completed requests, as they arrived. Times are seconds since the epoch."""

    arrived_s: Floats
    first_s: Floats
    last_s: Floats
    tokens: Floats

    @property
    def ttft_ms(self) -> Floats:
        return 1000 * (self.first_s - self.arrived_s)

    @property
    def tpot_ms(self) -> Floats:
        """Of the answers that have more than one token."""
        several = self.tokens > 1
        decode_s = self.last_s[several] - self.first_s[several]
        result: Floats = 1000 * decode_s / (self.tokens[several] - 1)
        return result

    def mean_concurrency(self, from_s: float, until_s: float) -> float:
        """Requests under way between two times, on average."""
        inside = np.minimum(self.last_s, until_s) - np.maximum(self.arrived_s, from_s)
        return float(inside.clip(0).sum() / (until_s - from_s))


class TruthServer:
    """A running server on the loopback interface."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def set_plan(self, plan: Plan) -> None:
        """Answer at this pace from now on, and forget what was."""
        self._ask("/plan", json.dumps(asdict(plan)).encode())

    def truth(self) -> Truth:
        """What happened since the plan was set. Requests without an end are left out."""
        rows = np.array(json.loads(self._ask("/truth")), dtype=np.int64).reshape(-1, 4)
        rows = rows[rows[:, 2] > 0]
        seconds = rows[:, :3].astype(np.float64) / 1e9
        return Truth(seconds[:, 0], seconds[:, 1], seconds[:, 2], rows[:, 3].astype(np.float64))

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", body, timeout=_ANSWER_TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content


def ensure_built() -> Path:
    """The program, built now unless the cache has it. Raises TruthServerError."""
    digest = hashlib.sha256()
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    program = cache_root() / f"truthserver-{digest.hexdigest()[:10]}"
    if program.is_file():
        return program
    if shutil.which("go") is None:
        raise TruthServerError("Go is not on this machine; install Go 1.25 or newer and put it on PATH")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        built = Path(scratch) / program.name
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(built), "."]
        done = subprocess.run(command, cwd=_SOURCE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TruthServerError(f"the truth server does not build: {done.stderr[-1000:]}")
        built.rename(program)
    return program


@contextlib.contextmanager
def running() -> Iterator[TruthServer]:
    """A server on a free port, ended with the context. Raises TruthServerError."""
    process = subprocess.Popen([str(ensure_built())], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        port = re.search(r"port (\d+)", said)
        if port is None:
            raise TruthServerError(f"the truth server did not start: {said or 'it said nothing'}")
        yield TruthServer(int(port[1]))
    finally:
        process.terminate()
        process.wait(10)
