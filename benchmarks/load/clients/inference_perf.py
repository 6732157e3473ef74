"""The Kubernetes project's `inference-perf`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.load import tokenizer
from benchmarks.load.environments import ClientEnvironment
from benchmarks.load.levels import MODEL, PROMPT_TOKENS, Client, ClientFailed, Level, Quantiles, Report

_FOLDER = "reports"


class InferencePerf(Client):
    """Reports seconds."""

    name = "inference-perf"
    _environment = ClientEnvironment("inference-perf", "3.12")

    @property
    def version(self) -> str:
        return self._environment.version

    def prepare(self) -> None:
        self._programs = self._environment.prepare()

    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        if level.streams:
            load: dict[str, Any] = {
                "type": "concurrent",
                "stages": [{"concurrency_level": level.streams, "num_requests": level.requests}],
                "worker_max_concurrency": level.streams,
            }
        else:
            duration_s = round(level.requests / level.rate)
            load = {
                "type": "constant",
                "stages": [{"rate": level.rate, "duration": duration_s}],
                "worker_max_concurrency": level.requests,
            }
        configuration = {
            "load": load,
            "api": {"type": "completion", "streaming": True},
            "server": {
                "type": "vllm",
                "model_name": MODEL,
                "base_url": f"http://127.0.0.1:{port}",
                "ignore_eos": True,
            },
            "tokenizer": {"pretrained_model_name_or_path": str(tokenizer.write(scratch / "tokenizer"))},
            "data": {
                "type": "random",
                "input_distribution": _fixed(PROMPT_TOKENS, level.requests),
                "output_distribution": _fixed(level.output_tokens, level.requests),
            },
            "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
            "storage": {"local_storage": {"path": str(scratch / _FOLDER)}},
        }
        path = scratch / "config.yml"
        path.write_text(json.dumps(configuration), encoding="ascii")  # JSON is YAML
        return [str(self._programs / "inference-perf"), "--config_file", str(path)]

    def report(self, level: Level, scratch: Path) -> Report:
        try:
            (summary,) = scratch.glob(f"{_FOLDER}/**/summary_lifecycle_metrics.json")
            successes = json.loads(summary.read_text(encoding="utf-8"))["successes"]
            latency = successes["latency"]
            values = [
                1000 * float(latency[metric][p])
                for metric in ("time_to_first_token", "time_per_output_token")
                for p in ("median", "p99")
            ]
            return Report(Quantiles(*values), int(successes["count"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClientFailed(f"no result that can be read: {error!r}") from error


def _fixed(tokens: int, count: int) -> dict[str, Any]:
    return {"type": "fixed", "mean": tokens, "min": tokens, "max": tokens, "total_count": count}
