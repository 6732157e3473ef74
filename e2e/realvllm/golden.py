"""Takes the golden /metrics body from a real server, after a fixed handful of requests.

The file is the contract of the simulated engine and of every reader of vLLM's metrics. A new vLLM
release gets a new file beside the old one.
"""

import json
import urllib.request
from pathlib import Path

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import SERVED_MODEL_NAME, EngineSettings, LocalServer, running

GOLDEN_FOLDER = Path(__file__).resolve().parents[2] / "tests" / "contract" / "golden"
METRICS_GOLDEN = GOLDEN_FOLDER / "vllm-0.32-metrics.txt"
# The limits and the model length shape the body: token-count buckets end at max_model_len.
GOLDEN_SETTINGS = EngineSettings(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len_tokens=2048)


def take(engine: RealVllm) -> str:
    """The raw /metrics body of a fresh server of GOLDEN_SETTINGS after `send_sample_requests`."""
    with running(engine, GOLDEN_SETTINGS) as server:
        send_sample_requests(server)
        return server.metrics_text()


def send_sample_requests(server: LocalServer) -> None:
    """A plain and a streamed completion, so that every family which needs a request has a sample."""
    prompt = list(range(1, 41))
    complete(server.url, prompt_token_ids=prompt, output_tokens=8)
    stream(server.url, prompt_token_ids=prompt, output_tokens=6)


def complete(url: str, *, prompt_token_ids: list[int], output_tokens: int) -> str:
    """The body of one /v1/completions answer with exactly `output_tokens` tokens."""
    return _post(url, prompt_token_ids, output_tokens, {})


def stream(url: str, *, prompt_token_ids: list[int], output_tokens: int) -> str:
    """The event stream of one /v1/completions answer, with a usage block in every chunk."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    return _post(url, prompt_token_ids, output_tokens, {"stream": True, "stream_options": options})


def _post(url: str, prompt_token_ids: list[int], output_tokens: int, more: dict[str, object]) -> str:
    body = {
        "model": SERVED_MODEL_NAME,
        "prompt": prompt_token_ids,
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        **more,
    }
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: bytes = response.read()
    return answer.decode()
