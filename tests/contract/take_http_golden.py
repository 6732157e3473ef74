"""Takes golden/vllm-0.32-http.json from a real server: `python -m tests.contract.take_http_golden`.

Each exchange is a request and the real answer to it, as it came. The simulated engine must answer the same
requests in the same form (test_engine_golden.py). Needs the real vLLM environment of e2e/realvllm.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx

from e2e.realvllm.environment import prepare
from e2e.realvllm.server import EngineSettings, running

GOLDEN = Path(__file__).parent / "golden" / "vllm-0.32-http.json"
MODEL_LENGTH = 512
_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
_PROMPT = {"prompt": [1, 2, 3]}
_CHAT = {"messages": [{"role": "user", "content": "hello"}]}
_EACH = {"include_usage": True, "continuous_usage_stats": True}


def requests() -> list[tuple[str, str, Any]]:
    """Method, path, JSON body (text for one that is not JSON, None for none)."""
    cases: list[tuple[str, str, Any]] = [
        ("GET", path, None) for path in ("/v1/models", "/version", "/load", "/health", "/ping", "/nothing")
    ]
    cases += [("POST", "/ping", None), ("GET", "/v1/completions", None), ("POST", "/v1/models", {})]
    for path, prompt in (("/v1/completions", _PROMPT), ("/v1/chat/completions", _CHAT)):
        for options in (None, {"include_usage": True}, _EACH):
            for tokens in (1, 4):
                body = {**prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
                cases.append(("POST", path, body | ({"stream_options": options} if options else {})))
        cases.append(("POST", path, {**prompt, "max_tokens": 3, "ignore_eos": True}))
        cases.append(("POST", path, {**prompt, "model": "other"}))
        cases.append(("POST", path, {**prompt, "max_tokens": 0}))
        cases.append(("POST", path, {**prompt, "max_tokens": -1}))
        cases.append(("POST", path, {**prompt, "max_tokens": "many"}))
        cases.append(("POST", path, {**prompt, "max_tokens": 2, "min_tokens": 3}))
        cases.append(("POST", path, {**prompt, "stream_options": _EACH}))
        cases.append(("POST", path, {"max_tokens": 1}))
        cases.append(("POST", path, "{"))
    for length, tokens in ((MODEL_LENGTH + 1, 1), (MODEL_LENGTH, 1), (MODEL_LENGTH - 1, 9), (0, 1)):
        body = {"prompt": [1] * length, "max_tokens": tokens, "ignore_eos": True}
        cases.append(("POST", "/v1/completions", body))
    return cases


def exchange(client: httpx.Client, method: str, path: str, body: Any) -> dict[str, Any]:
    """One request and its answer."""
    content = None if body is None else body if isinstance(body, str) else json.dumps(body)
    answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
    return {
        "method": method,
        "path": path,
        "body": body,
        "status": answer.status_code,
        "headers": sorted(name for name in answer.headers if name != "date"),
        "content_type": answer.headers.get("content-type"),
        "answer": answer.text,
    }


def main() -> None:
    engine = prepare()
    with tempfile.TemporaryDirectory() as scratch:
        template = Path(scratch) / "template.jinja"
        template.write_text(_TEMPLATE)
        settings = EngineSettings(
            max_num_seqs=8,
            max_num_batched_tokens=512,
            max_model_len_tokens=MODEL_LENGTH,
            extra_args=("--chat-template", str(template)),
        )
        with running(engine, settings) as server, httpx.Client(base_url=server.url, timeout=60) as client:
            taken = [exchange(client, *request) for request in requests()]
    # Where the model lies on this machine is nobody's business.
    GOLDEN.write_text(json.dumps(taken, indent=1).replace(str(engine.model), "/models/tiny") + "\n")


if __name__ == "__main__":
    main()
