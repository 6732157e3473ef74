"""Takes golden/vllm-0.32-schedules.json from vLLM's own scheduler, driven without a model.

Run it with the interpreter of the real vLLM environment (`python -m e2e.realvllm prepare` makes one):
`VENV/bin/python tests/contract/take_scheduler_golden.py MODEL_FOLDER`. It imports nothing of this project.

Each case is a set of limits, requests with the step before which they arrive, and what vLLM scheduled in each
step, as text: `3:16` for 16 tokens of request 3 and `-3` for its preemption.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

GOLDEN = Path(__file__).parent / "golden" / "vllm-0.32-schedules.json"
_CASES = 24
_BLOCK_SIZE = 16
_MODEL_LENGTH = 256


def draw_case(rng: random.Random) -> dict[str, Any]:
    """Limits that bind now and then, and requests that arrive over the first steps."""
    chunked = rng.random() < 0.75
    seqs = rng.randint(1, 8)
    requests = []
    for _ in range(rng.randint(2, 12)):
        prompt = rng.randint(1, 160)
        requests.append(
            {"prompt": prompt, "output": rng.randint(1, min(60, _MODEL_LENGTH - prompt)), "step": rng.randint(0, 25)}
        )
    return {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": rng.randint(seqs, 200) if chunked else _MODEL_LENGTH,
        "max_model_len": _MODEL_LENGTH,
        "num_gpu_blocks": rng.randint(_MODEL_LENGTH // _BLOCK_SIZE + 1, 40),
        "block_size": _BLOCK_SIZE,
        "chunked_prefill": chunked,
        "long_prefill_token_threshold": rng.choice([0, 0, 20]),
        "requests": sorted(requests, key=lambda request: request["step"]),
    }


def scheduler_of(case: dict[str, Any], model: str) -> Scheduler:
    configuration = EngineArgs(
        model=model,
        dtype="float32",
        enforce_eager=True,
        block_size=_BLOCK_SIZE,
        enable_prefix_caching=False,
        async_scheduling=False,
        max_model_len=case["max_model_len"],
        max_num_seqs=case["max_num_seqs"],
        max_num_batched_tokens=case["max_num_batched_tokens"],
        enable_chunked_prefill=case["chunked_prefill"],
        long_prefill_token_threshold=case["long_prefill_token_threshold"],
    ).create_engine_config()
    spec = FullAttentionSpec(
        block_size=_BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=configuration.model_config.dtype
    )
    configuration.cache_config.num_gpu_blocks = case["num_gpu_blocks"]
    cache = KVCacheConfig(
        num_blocks=case["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return Scheduler(configuration, cache, StructuredOutputManager(configuration), block_size=_BLOCK_SIZE)


def run(case: dict[str, Any], model: str) -> list[str]:
    """What vLLM schedules in each step until every request is finished."""
    scheduler = scheduler_of(case, model)
    waiting = list(enumerate(case["requests"]))
    live: dict[str, Request] = {}
    steps: list[str] = []
    while waiting or live:
        while waiting and waiting[0][1]["step"] <= len(steps):
            number, wanted = waiting.pop(0)
            parameters = SamplingParams(max_tokens=wanted["output"], ignore_eos=True)
            live[str(number)] = Request(str(number), [1] * wanted["prompt"], parameters, None)
            scheduler.add_request(live[str(number)])
        plan = scheduler.schedule()
        scheduled = list(plan.num_scheduled_tokens)
        done = [live[name].num_computed_tokens >= live[name].num_tokens for name in scheduled]
        preempted = sorted(plan.preempted_req_ids or ())
        tokens = [f"{name}:{plan.num_scheduled_tokens[name]}" for name in sorted(scheduled)]
        steps.append(" ".join([*tokens, *(f"-{name}" for name in preempted)]))
        output = ModelRunnerOutput(
            req_ids=scheduled,
            req_id_to_index={name: index for index, name in enumerate(scheduled)},
            sampled_token_ids=[[2] if complete else [] for complete in done],
        )
        scheduler.update_from_output(plan, output)
        live = {name: request for name, request in live.items() if not request.is_finished()}
    return steps


def main() -> None:
    rng = random.Random(32)
    cases = [draw_case(rng) for _ in range(_CASES)]
    GOLDEN.write_text(json.dumps([case | {"steps": run(case, sys.argv[1])} for case in cases], indent=1) + "\n")


if __name__ == "__main__":
    main()
