"""Which values of the two limits are worth trying, and which an engine accepts.

Facts are from vLLM's sources: the sizes of its CUDA graphs, and `SchedulerConfig.verify_max_model_len`. Unknown is
an answer here: None, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kneekeeper.api.model import Setting

if TYPE_CHECKING:  # `arguments` uses the rules below
    from kneekeeper.domain.arguments.model import EngineArguments

# Every batch size with a CUDA graph of its own: 1, 2, 4, then steps of 8 up to 256, then steps of 16.
SMALL_GRAPH_SIZES = (1, 2, 4)
FINE_GRAPH_STEP = 8
LAST_FINE_GRAPH_SIZE = 256
COARSE_GRAPH_STEP = 16
MAX_SEQUENCES = 4096  # beyond any default (1024) by far; bounds a list

SMALLEST_TOKEN_BUDGET = 64
MAX_TOKEN_BUDGET = 1 << 17  # a budget of 131,072 tokens crashes V1 engines (vLLM issue 15446)


def valid_sequence_grid(highest: int) -> list[int]:
    """All max_num_seqs up to `highest` whose full batch has a CUDA graph of its own, ascending.

    Off this grid the last few sequences of a full batch run without a full graph before vLLM 0.31
    (pull request 57355), which is a cliff in TPOT.
    """
    fine = range(FINE_GRAPH_STEP, LAST_FINE_GRAPH_SIZE + 1, FINE_GRAPH_STEP)
    coarse = range(LAST_FINE_GRAPH_SIZE + COARSE_GRAPH_STEP, MAX_SEQUENCES + 1, COARSE_GRAPH_STEP)
    return [size for size in (*SMALL_GRAPH_SIZES, *fine, *coarse) if size <= highest]


def valid_token_grid(highest: int) -> list[int]:
    """The max_num_batched_tokens to try, up to `highest`, ascending: powers of two and 1.5 times these.

    Neighbours differ by a third to a half: less would be lost in the noise of a stage.
    """
    grid: list[int] = []
    budget = SMALLEST_TOKEN_BUDGET
    while budget < MAX_TOKEN_BUDGET:
        grid += [budget, budget + budget // 2]
        budget *= 2
    return [tokens for tokens in grid if tokens <= highest]


@dataclass(frozen=True)
class TokenFloor:
    """The smallest token budget that is known to work, and the rule that asks for it.

    `tokens` is None where the rule's number is not in the arguments: then no budget is proven.
    """

    tokens: int | None
    rule: str
    next_step: str


def floor_of_tokens(
    arguments: EngineArguments, max_num_seqs: int, served_max_model_len: int | None = None
) -> TokenFloor:
    """The strictest rule on max_num_batched_tokens for an engine with these arguments.

    `served_max_model_len` (tokens) is what /v1/models reported, if known. Where a rule's number is not known,
    the budget that the engine runs with today is proof enough, when it is given in the arguments.
    """
    floors = _floors(arguments, max_num_seqs, served_max_model_len)
    unknown = [floor for floor in floors if floor.tokens is None]
    return unknown[0] if unknown else max(floors, key=lambda floor: floor.tokens or 0)


def _floors(arguments: EngineArguments, max_num_seqs: int, served_max_model_len: int | None) -> list[TokenFloor]:
    floors = [
        TokenFloor(
            max_num_seqs,
            "max_num_batched_tokens must be at least max_num_seqs",
            "Raise the token budget or lower the sequences.",
        )
    ]
    present_tokens = arguments.max_num_batched_tokens
    if not arguments.chunked_prefill:
        floors.append(
            TokenFloor(
                arguments.max_model_len or served_max_model_len or present_tokens,
                "without chunked prefill max_num_batched_tokens must be at least max_model_len",
                "Raise the token budget, lower --max-model-len, or enable chunked prefill.",
            )
        )
    if not arguments.chunked_mm_input:
        floors.append(
            TokenFloor(
                present_tokens,
                "with --disable-chunked-mm-input the budget must hold the largest multimodal item, "
                "whose size is not in the arguments",
                "Keep the token budget at today's value, or remove --disable-chunked-mm-input.",
            )
        )
    if arguments.speculative is not None:
        drafted = arguments.speculative.num_speculative_tokens
        floors.append(
            TokenFloor(
                None if drafted is None else max_num_seqs * (1 + drafted),
                "with speculative decoding max_num_batched_tokens must be at least "
                "max_num_seqs x (1 + num_speculative_tokens)",
                "Raise the token budget, or lower the sequences or num_speculative_tokens (write it out).",
            )
        )
    return floors


def limit_conflict(arguments: EngineArguments, setting: Setting, served_max_model_len: int | None = None) -> str | None:
    """Why vLLM would not start, or not serve, with `setting` and these arguments; None where it would.

    The text ends with the next step. Covers vLLM's own checks at start (the same since 0.6.0, LoRA with
    speculative decoding included) and budgets too small for a step.
    """
    active = arguments.max_num_active_seqs
    if active is not None and active > setting.max_num_seqs:
        return (
            f"max_num_active_seqs ({active}) cannot be greater than max_num_seqs. "
            f"Lower --max-num-active-seqs to {setting.max_num_seqs} or remove it."
        )
    floor = floor_of_tokens(arguments, setting.max_num_seqs, served_max_model_len)
    if floor.tokens is None:
        return f"{floor.rule}. {floor.next_step}"
    if setting.max_num_batched_tokens < floor.tokens:
        return f"{floor.rule} ({floor.tokens}). {floor.next_step}"
    return None
