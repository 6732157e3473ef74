"""One real vLLM server as a local process on loopback, started and stopped by the caller."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.realvllm.environment import RealVllm, RealVllmUnavailable

SERVED_MODEL_NAME = "tiny"
START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 20.0

ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # One core for the engine leaves the other to whoever sends the load.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # The engine's processes talk over loopback; without this vLLM looks for a route to the internet.
    "VLLM_HOST_IP": "127.0.0.1",
}


@dataclass(frozen=True)
class EngineSettings:
    """The arguments of one engine start. Token counts in tokens, the KV cache in MiB.

    `max_num_seqs` and `max_num_batched_tokens` left None are not passed, so that vLLM's defaults hold.
    """

    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_model_len_tokens: int = 2048
    kv_cache_mib: int = 256
    extra_args: tuple[str, ...] = ()

    def arguments(self, *, model: Path, port: int) -> tuple[str, ...]:
        """What follows `python -m vllm.entrypoints.openai.api_server`."""
        limits: list[str] = []
        if self.max_num_seqs is not None:
            limits += ["--max-num-seqs", str(self.max_num_seqs)]
        if self.max_num_batched_tokens is not None:
            limits += ["--max-num-batched-tokens", str(self.max_num_batched_tokens)]
        return (
            "--model",
            str(model),
            "--served-model-name",
            SERVED_MODEL_NAME,
            "--load-format",
            "dummy",
            "--dtype",
            "float32",
            "--enforce-eager",
            "--port",
            str(port),
            "--max-model-len",
            str(self.max_model_len_tokens),
            "--kv-cache-memory-bytes",
            f"{self.kv_cache_mib}M",
            *limits,
            *self.extra_args,
        )


@dataclass(frozen=True)
class LocalServer:
    """A server that answers /health. `log` grows while it runs."""

    url: str
    log: Path
    pid: int

    def metrics_text(self) -> str:
        """The raw body of /metrics."""
        return _get(f"{self.url}/metrics")


class ServerDidNotStart(RealVllmUnavailable):
    """The process ended or stayed silent; `log_text` is all that it printed."""

    def __init__(self, reason: str, log_text: str) -> None:
        super().__init__(f"vLLM did not start: {reason}. The end of its log:\n{log_text[-3000:]}")
        self.log_text = log_text


@contextlib.contextmanager
def running(
    engine: RealVllm, settings: EngineSettings, *, environment: Mapping[str, str] | None = None
) -> Iterator[LocalServer]:
    """Start a real server, wait until it is healthy, and stop it with all its children on the way out.

    `environment` is added to the process's own. Raises ServerDidNotStart.
    """
    port = free_port()
    with serving(
        command(engine, settings, port=port), port=port, environment={**ENVIRONMENT, **(environment or {})}
    ) as server:
        yield server


@contextlib.contextmanager
def serving(command_line: Sequence[str], *, port: int, environment: Mapping[str, str]) -> Iterator[LocalServer]:
    """As `running`, for any command that opens a vLLM-like server on that port of loopback."""
    with tempfile.TemporaryDirectory(prefix="realvllm-") as scratch:
        log = Path(scratch) / "server.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                ["nice", "-n", "5", *command_line],
                env={**os.environ, "HOME": scratch, "TMPDIR": scratch, **environment},
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                # A group of its own: the engine core is a child that outlives a killed parent. No session of its own:
                # the kernel shares the cores out between sessions first, and then the engine's polling threads keep
                # the load generator waiting for tenths of a second. Within the session, nice lets it go first.
                process_group=0,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _await_health(process, url, log)
            yield LocalServer(url=url, log=log, pid=process.pid)
        finally:
            _stop(process)


def command(engine: RealVllm, settings: EngineSettings, *, port: int) -> Sequence[str]:
    """The whole command line of a local server; listens on loopback only."""
    entry = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    return [*entry, *settings.arguments(model=engine.model, port=port)]


def _await_health(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerDidNotStart(f"it ended with {process.returncode}", log.read_text(errors="replace"))
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            _get(f"{url}/health")
            return
        time.sleep(0.5)
    raise ServerDidNotStart(f"no answer in {START_TIMEOUT_S:.0f} s", log.read_text(errors="replace"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Also after the parent's own end: its children share the group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_STOP_TIMEOUT_S)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        body: bytes = response.read()
    return body.decode()


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
