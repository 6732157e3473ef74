"""vLLM's own `bench serve` as an independent client: a judge that shares no code with this project.

Open loop, Poisson arrivals. The prompts are written here, as random letters: `bench serve`'s own random
data set steps through the vocabulary, so a byte-level tokenizer leaves it 256 different prompts, which
the prefix cache then answers. With one token a byte, a prompt of N letters has exactly N tokens.
"""

import json
import os
import random
import string
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import SERVED_MODEL_NAME

_ENTRY = Path(__file__).with_name("bench_entry.py")
# Importing vLLM and waiting for the last answers, beyond the arrivals themselves.
_OVERHEAD_S = 180.0


@dataclass(frozen=True)
class BenchLoad:
    """What to offer: lengths in tokens, one pair a request, arriving at `rate_rps` on average."""

    rate_rps: float
    requests: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    """Each request draws its lengths evenly from these closed ranges."""


@dataclass(frozen=True)
class BenchResult:
    """What the client saw, over completed requests. Failed ones are in no percentile: check `failed`."""

    p99_ttft_ms: float
    p50_ttft_ms: float
    p99_tpot_ms: float
    p50_tpot_ms: float
    completed: int
    failed: int
    offered_rps: float
    achieved_rps: float
    duration_s: float


class BenchFailed(Exception):
    """`bench serve` ended without a result, or one that breaks its contract; the message tells which."""


def run(engine: RealVllm, url: str, load: BenchLoad, *, seed: int) -> BenchResult:
    """Offer `load` to the server at `url` and wait for its end. Blocking. Raises BenchFailed.

    `seed` draws the prompts, the lengths and the arrivals. Two runs against one server need different
    seeds, else the prefix cache answers the second one.
    """
    with tempfile.TemporaryDirectory(prefix="realvllm-bench-") as scratch:
        dataset = Path(scratch) / "prompts.jsonl"
        expected_output_tokens = write_prompts(dataset, load, seed)
        result = Path(scratch) / "result.json"
        arguments = _arguments(url, load, seed, engine.model, dataset, result)
        try:
            done = subprocess.run(
                [str(engine.python), str(_ENTRY), *arguments],
                env=_environment(scratch),
                cwd=scratch,
                capture_output=True,
                text=True,
                check=False,
                timeout=_OVERHEAD_S + 3 * load.requests / load.rate_rps,
            )
        except subprocess.TimeoutExpired as late:
            raise BenchFailed(f"bench serve did not end in {late.timeout:.0f} s: is {url} overloaded?") from late
        if not result.is_file():
            raise BenchFailed(
                f"bench serve ended with {done.returncode} and no result; is {url} up? It said:\n"
                f"{(done.stdout + done.stderr)[-3000:]}"
            )
        return parse_result(result.read_text(encoding="utf-8"), load, expected_output_tokens)


def write_prompts(path: Path, load: BenchLoad, seed: int) -> int:
    """Write the data set, one JSON line a request; returns the sum of the output tokens asked for."""
    draw = random.Random(seed)
    total = 0
    with path.open("w", encoding="utf-8") as sink:
        for _ in range(load.requests):
            prompt = "".join(draw.choices(string.ascii_letters, k=draw.randint(*load.prompt_tokens)))
            output_tokens = draw.randint(*load.output_tokens)
            total += output_tokens
            sink.write(json.dumps({"prompt": prompt, "output_tokens": output_tokens}) + "\n")
    return total


def _arguments(url: str, load: BenchLoad, seed: int, model: Path, dataset: Path, result: Path) -> Sequence[str]:
    options = {
        "--backend": "openai",
        "--base-url": url,
        "--endpoint": "/v1/completions",
        "--model": str(model),
        "--served-model-name": SERVED_MODEL_NAME,
        "--dataset-name": "custom",
        "--dataset-path": str(dataset),
        "--custom-output-len": "-1",
        "--num-prompts": str(load.requests),
        "--request-rate": str(load.rate_rps),
        "--burstiness": "1.0",
        "--seed": str(seed),
        "--temperature": "0",
        "--percentile-metrics": "ttft,tpot",
        "--metric-percentiles": "50,99",
        "--result-dir": str(result.parent),
        "--result-filename": result.name,
        "--ready-check-timeout-sec": "0",
    }
    switches = ("--skip-chat-template", "--ignore-eos", "--save-result", "--disable-tqdm")
    return [*(part for pair in options.items() for part in pair), *switches]


def _environment(scratch: str) -> dict[str, str]:
    # VLLM_* of the caller (a pod beside a Service called vllm) must not reach the client.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    return {**kept, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "HOME": scratch}


def parse_result(result_json: str, load: BenchLoad, expected_output_tokens: int) -> BenchResult:
    """Read the file that `bench serve --save-result` writes. Raises BenchFailed.

    Every request must be counted, and without failures every token that was asked for must have come.
    """
    raw = json.loads(result_json)
    parsed = BenchResult(
        p99_ttft_ms=float(raw["p99_ttft_ms"]),
        p50_ttft_ms=float(raw["p50_ttft_ms"]),
        p99_tpot_ms=float(raw["p99_tpot_ms"]),
        p50_tpot_ms=float(raw["p50_tpot_ms"]),
        completed=int(raw["completed"]),
        failed=int(raw["failed"]),
        offered_rps=load.rate_rps,
        achieved_rps=float(raw["request_throughput"]),
        duration_s=float(raw["duration"]),
    )
    if parsed.completed + parsed.failed != load.requests:
        raise BenchFailed(f"{load.requests} requests were asked for, the result tells of {parsed}")
    output_tokens = int(raw["total_output_tokens"])
    if parsed.failed == 0 and output_tokens != expected_output_tokens:
        raise BenchFailed(
            f"{expected_output_tokens} output tokens were asked for, {output_tokens} came: TPOT would be wrong"
        )
    return parsed
