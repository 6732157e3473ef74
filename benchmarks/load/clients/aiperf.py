"""NVIDIA's `aiperf profile`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.load import tokenizer
from benchmarks.load.environments import ClientEnvironment
from benchmarks.load.levels import MODEL, PROMPT_TOKENS, Client, ClientFailed, Level, Quantiles, Report

_FOLDER, _RESULT = "artifacts", "profile_export_aiperf.json"


class AiPerf(Client):
    """Its `inter_token_latency` is one mean for each request. Tokens are counted by the server: the cheap way."""

    name = "aiperf"
    _environment = ClientEnvironment("aiperf", "3.11")

    @property
    def version(self) -> str:
        return self._environment.version

    def prepare(self) -> None:
        self._programs = self._environment.prepare()

    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        options = {
            "--model": MODEL,
            "--url": f"http://127.0.0.1:{port}",
            "--endpoint-type": "completions",
            "--tokenizer": tokenizer.write_into_hub_cache(scratch),
            "--isl": PROMPT_TOKENS,
            "--osl": level.output_tokens,
            "--request-count": level.requests,
            "--output-artifact-dir": scratch / _FOLDER,
            "--export-level": "summary",
            "--ui": "none",
        }
        load: dict[str, object] = {"--concurrency": level.streams}
        if level.rate:
            load = {"--request-rate": level.rate, "--arrival-pattern": "constant"}
        pairs = [str(part) for pair in (options | load).items() for part in pair]
        switches = ["--streaming", "--use-server-token-count", "--use-legacy-max-tokens"]
        return [str(self._programs / "aiperf"), "profile", *pairs, *switches]

    def report(self, level: Level, scratch: Path) -> Report:
        try:
            raw = json.loads((scratch / _FOLDER / _RESULT).read_text(encoding="utf-8"))
            values = [
                float(raw[metric][p])
                for metric in ("time_to_first_token", "inter_token_latency")
                for p in ("p50", "p99")
            ]
            return Report(Quantiles(*values), int(raw["request_count"]["avg"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClientFailed(f"no result that can be read: {error!r}") from error
