"""vLLM's own `bench serve`."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

from benchmarks.load.environments import ClientUnavailable
from benchmarks.load.levels import MODEL, PROMPT_TOKENS, Client, ClientFailed, Level, Quantiles, Report
from e2e.realvllm import environment

_RESULT = "result.json"
_ENTRY = Path(environment.__file__).with_name("bench_entry.py")


class VllmBench(Client):
    """`burstiness` infinite is a constant rate; a closed loop is an infinite rate behind a semaphore."""

    name = "vllm bench serve"

    @property
    def version(self) -> str:
        return environment.VLLM_VERSION

    def prepare(self) -> None:
        try:
            self._vllm = environment.prepare()
        except environment.RealVllmUnavailable as error:
            raise ClientUnavailable(str(error)) from error

    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        prompts = scratch / "prompts.jsonl"
        draw = random.Random(level.requests)
        with prompts.open("w", encoding="ascii") as sink:
            for _ in range(level.requests):
                prompt = "".join(draw.choices(string.ascii_letters, k=PROMPT_TOKENS))
                sink.write(json.dumps({"prompt": prompt, "output_tokens": level.output_tokens}) + "\n")
        options = {
            "--backend": "openai",
            "--base-url": f"http://127.0.0.1:{port}",
            "--endpoint": "/v1/completions",
            "--model": self._vllm.model,
            "--served-model-name": MODEL,
            "--dataset-name": "custom",
            "--dataset-path": prompts,
            "--custom-output-len": -1,
            "--num-prompts": level.requests,
            "--percentile-metrics": "ttft,tpot",
            "--metric-percentiles": "50,99",
            "--result-dir": scratch,
            "--result-filename": _RESULT,
            "--ready-check-timeout-sec": 0,
        }
        load: dict[str, object] = {"--max-concurrency": level.streams}
        if level.rate:
            load = {"--request-rate": level.rate, "--burstiness": "inf"}
        switches = ["--skip-chat-template", "--ignore-eos", "--save-result", "--disable-tqdm"]
        pairs = [str(part) for pair in (options | load).items() for part in pair]
        return [str(self._vllm.python), str(_ENTRY), *pairs, *switches]

    def report(self, level: Level, scratch: Path) -> Report:
        try:
            raw = json.loads((scratch / _RESULT).read_text(encoding="utf-8"))
            quantiles = Quantiles(*(float(raw[f"{p}_{what}_ms"]) for what in ("ttft", "tpot") for p in ("p50", "p99")))
            return Report(quantiles, int(raw["completed"]))
        except (OSError, ValueError, KeyError) as error:
            raise ClientFailed(f"no result that can be read: {error!r}") from error
