"""What the simulated engine runs on: step times, memory, start-up and faults, read from KNEEKEEPER_SIM.

The variable holds one JSON object; whatever it leaves out has a default. The defaults resemble a model of
three billion parameters on a 24 GiB card. Their step-time law is on purpose not of the shape that the
product fits (constant, sequences, KV tokens, prefill tokens, squared prefill tokens): batches are padded to
CUDA-graph sizes, prefill costs attention over its context, and every step is noisy. A product that only
works on its own model would fail here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

ENVIRONMENT_VARIABLE = "KNEEKEEPER_SIM"

_NonNegative = Annotated[float, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]


class HardwareError(ValueError):
    """KNEEKEEPER_SIM cannot be read. The message names the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepTimeLaw(_Part):
    """How long one engine step takes, in milliseconds, before noise and drift."""

    base_ms: _Positive = 6.0
    """Milliseconds of any step: reading the weights, launching kernels, scheduling."""

    per_sequence_ms: _NonNegative = 0.03
    """Milliseconds for each sequence of the (padded) batch."""

    per_prefill_token_ms: _NonNegative = 0.033
    """Milliseconds for each prompt token computed."""

    per_prefill_token_pair_ms: _NonNegative = 2e-6
    """Milliseconds for each pair of a prompt token computed and a token it attends to: the quadratic term.
    2,048 tokens of a fresh prompt are 2.1 million pairs and cost 4 ms."""

    per_kv_token_ms: _NonNegative = 4e-5
    """Milliseconds for each token of context that the step's sequences hold."""

    pad_to_graph_sizes: bool = True
    """Whether a batch of decodes costs as much as the next larger captured CUDA-graph size."""

    eager_ms: _NonNegative = 1.5
    """Milliseconds more for a batch larger than the largest captured graph, and for every step with
    `--enforce-eager`."""

    noise: Annotated[float, Field(ge=0, lt=1)] = 0.03
    """Relative standard deviation of a step's duration (log-normal, independent between steps)."""

    drift: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Relative amplitude of a slow sine on the duration: a noisy neighbour, a throttled clock."""

    drift_period_s: _Positive = 600.0
    """Seconds of one period of the drift."""


class GpuMemory(_Part):
    """Memory of one GPU. With tensor parallelism weights and KV cache are spread evenly over the GPUs."""

    memory_gib: _Positive = 24.0
    """GiB of the GPU."""

    weights_gib: _NonNegative = 6.0
    """GiB of the model's weights, over all GPUs."""

    kv_bytes_per_token: Annotated[int, Field(gt=0)] = 114_688
    """Bytes of keys and values of one token, over all GPUs and layers."""

    activation_bytes_per_batched_token: _NonNegative = 512 * 1024
    """Bytes of activations for each token of `--max-num-batched-tokens`."""

    sampler_bytes_per_sequence: _NonNegative = 2 * 1024 * 1024
    """Bytes of logits and their copies for each sequence of `--max-num-seqs`."""


class FaultKind(StrEnum):
    """How the engine fails."""

    EXIT = "Exit"
    """The engine core dies and the server process ends with code 1, as vLLM's does."""

    ENGINE_DEAD = "EngineDead"
    """The engine core dies and the server stays: /health answers 503, requests fail with 500."""

    HANG = "Hang"
    """No step ends any more, while /health answers 200."""


class Fault(_Part):
    """A failure at a given time."""

    after_s: _NonNegative
    """Seconds from the moment the port opens."""

    kind: FaultKind = FaultKind.EXIT
    """What happens then."""


class Hardware(_Part):
    """Everything that a real server would get from its GPU and model, and that flags do not say."""

    step_time: StepTimeLaw = StepTimeLaw()
    """How long steps take."""

    gpu: GpuMemory = GpuMemory()
    """What fits."""

    model_max_len: Annotated[int, Field(gt=0)] = 8192
    """Tokens of context in the model's own configuration: the default of `--max-model-len`."""

    sequence_limit: Annotated[int, Field(gt=0)] | None = None
    """A hard limit on `--max-num-seqs`, as the Mamba blocks of hybrid models set one; None for no limit."""

    startup_s: _NonNegative = 5.0
    """Seconds from the process's start to the open port, if the start succeeds. A start that fails does so
    after the same time, where a real one fails after loading the weights."""

    api_ms_per_request: _NonNegative = 1.0
    """Milliseconds for which the API process is busy with each request before the engine sees it
    (parsing, tokenisation). Requests wait for each other there."""

    mean_output_tokens: Annotated[float, Field(ge=1)] = 200.0
    """Mean length of the answer to a request that does not ignore the end-of-sequence token (geometric)."""

    fault: Fault | None = None
    """A failure to stage, for tests; None for none."""

    seed: int = 0
    """Seed of all random draws, mixed with `--seed`."""


def read_hardware(text: str | None) -> Hardware:
    """The hardware that the variable's text describes; the defaults when it is unset or empty.

    Raises HardwareError.
    """
    if not text:
        return Hardware()
    try:
        return Hardware.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise HardwareError(
            f"{ENVIRONMENT_VARIABLE} is not as kneekeeper.engine.hardware.Hardware: {problems}"
        ) from error
