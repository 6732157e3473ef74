"""GuideLLM's `guidellm run`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.load import tokenizer
from benchmarks.load.environments import ClientEnvironment
from benchmarks.load.levels import MODEL, PROMPT_TOKENS, Client, ClientFailed, Level, Quantiles, Report

_RESULT = "result.json"


class GuideLlm(Client):
    """With as many worker processes as there are cores; each of its usual ten takes half a minute to start here.

    Its `inter_token_latency` is what the others call time per output token: the first token is not in it.
    """

    name = "guidellm"
    _environment = ClientEnvironment("guidellm", "3.11")

    @property
    def version(self) -> str:
        return self._environment.version

    def prepare(self) -> None:
        self._programs = self._environment.prepare()

    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        backend = {
            "kind": "openai_http",
            "target": f"http://127.0.0.1:{port}",
            "model": MODEL,
            "request_format": "/v1/completions",
        }
        profile = (
            {"kind": "concurrent", "streams": [level.streams]}
            if level.streams
            else {"kind": "constant", "rate": [level.rate]}
        )
        prompts = scratch / "prompts.jsonl"
        with prompts.open("w", encoding="ascii") as sink:
            for number in range(level.requests):
                row = {"prompt": tokenizer.prompt(number, PROMPT_TOKENS), "output_tokens_count": level.output_tokens}
                sink.write(json.dumps(row) + "\n")
        data = {"kind": "json_file", "path": str(prompts)}
        parts = {
            "--backend": backend,
            "--profile": profile,
            "--data": data,
            "--constraint": {"kind": "max_requests", "count": level.requests},
            "--tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer.write(scratch / "tokenizer"))},
            "--output": {"kind": "json", "path": str(scratch / _RESULT)},
        }
        pairs = [part for name, value in parts.items() for part in (name, json.dumps(value))]
        workers = f"GUIDELLM__MAX_WORKER_PROCESSES={os.cpu_count()}"
        return ["env", workers, str(self._programs / "guidellm"), "run", *pairs, "--disable-console"]

    def report(self, level: Level, scratch: Path) -> Report:
        try:
            benchmark = json.loads((scratch / _RESULT).read_text(encoding="utf-8"))["benchmarks"][0]
            metrics = benchmark["metrics"]
            values = [
                float(metrics[metric]["successful"]["percentiles"][p])
                for metric in ("time_to_first_token_ms", "inter_token_latency_ms")
                for p in ("p50", "p99")
            ]
            return Report(Quantiles(*values), int(metrics["request_totals"]["successful"]))
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise ClientFailed(f"no result that can be read: {error!r}") from error
