"""Takes the logs of real servers that refuse to start; the start-up classifier is tested on them."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.realvllm.environment import RealVllm, RealVllmUnavailable
from e2e.realvllm.server import EngineSettings, ServerDidNotStart, running

LOGS_FOLDER = Path(__file__).resolve().parents[2] / "tests" / "unit" / "data" / "startup_logs"
# What `kubectl logs --tail` of a crashed container is read with.
TAIL_LINES = 120


@dataclass(frozen=True)
class FailingStart:
    """A start that must fail. `name` is the stem of the log's file."""

    name: str
    settings: EngineSettings
    environment: Mapping[str, str] = field(default_factory=dict)


FAILING_STARTS = (
    # What Kubernetes injects into every pod beside a Service called `vllm`.
    FailingStart("vllm-port-uri", EngineSettings(64, 2048), {"VLLM_PORT": "tcp://10.96.12.34:80"}),
    FailingStart("max-num-seqs-above-batched-tokens", EngineSettings(256, 128)),
    FailingStart(
        "batched-tokens-below-model-len",
        EngineSettings(64, 1024, extra_args=("--no-enable-chunked-prefill",)),
    ),
    FailingStart("kv-cache-below-model-len", EngineSettings(64, 2048, kv_cache_mib=1)),
    FailingStart("model-len-above-config", EngineSettings(64, 2048, max_model_len_tokens=8192)),
    FailingStart("unknown-argument", EngineSettings(64, 2048, extra_args=("--no-such-argument", "1"))),
)


def take_all(engine: RealVllm) -> Iterator[Path]:
    """Start each failing server in turn and write the tail of its log; yields the files."""
    LOGS_FOLDER.mkdir(parents=True, exist_ok=True)
    for start in FAILING_STARTS:
        path = LOGS_FOLDER / f"{start.name}.txt"
        path.write_text(take(engine, start), encoding="utf-8")
        yield path


def take(engine: RealVllm, start: FailingStart) -> str:
    """The last TAIL_LINES lines of the failing start's log, as a pod's log would show them.

    Raises RealVllmUnavailable when it does not fail.
    """
    try:
        with running(engine, start.settings, environment=start.environment):
            pass
    except ServerDidNotStart as failure:
        tail = failure.log_text.splitlines()[-TAIL_LINES:]
        return as_in_a_pod("\n".join(tail) + "\n", engine)
    raise RealVllmUnavailable(f"vLLM now starts with {start.name}: take it out of FAILING_STARTS")


def as_in_a_pod(log_text: str, engine: RealVllm) -> str:
    """The log with this machine's folders replaced by those of a container."""
    for here, there in (
        (engine.venv, "/vllm"),
        (engine.python_home, "/usr/local"),
        (engine.model, "/model"),
    ):
        log_text = log_text.replace(str(here), there)
    # A scratch home that `running` made.
    log_text = re.sub(r"/[^\s'\"]*/realvllm-\w+", "/tmp", log_text)
    if str(Path.home()) != "/" and str(Path.home()) in log_text:
        print(f"a path below the home folder is left in a log of {engine.venv.name}", file=sys.stderr)
    return log_text
