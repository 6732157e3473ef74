"""Which engines are misjudged by drawn prompts, told from their arguments and the model's name.

Random tokens are accepted by no draft model, so speculative decoding looks useless under them; they spread
evenly over experts and adapters that real text uses unevenly; and they hold no image. Names are the field's
habits, not facts, so what is read from one is a warning and never a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kneekeeper.domain.arguments import EngineArguments

_EXPERTS = re.compile(
    r"moe|mixtral|-a\d+(\.\d+)?b|gpt-oss|deepseek-?(v[23]|r1)(?!.*distill)|llama-4|dbrx|grok|kimi-k|minimax|glm-4\.[5-9]",
    re.IGNORECASE,
)
_MULTIMODAL = re.compile(
    r"[-_/.]vl([-_.]|$)|\dvl|vision|llava|pixtral|omni|internvl|gemma-3-(4|12|27)b|whisper|voxtral|paligemma",
    re.IGNORECASE,
)
_EXPERT_FLAGS = ("--enable-expert-parallel", "--enable-eplb")
_MULTIMODAL_FLAGS = ("--limit-mm-per-prompt", "--mm-processor-kwargs", "--disable-chunked-mm-input")


def misjudged_parts(arguments: EngineArguments, words: Iterable[str]) -> tuple[str, ...]:
    """What of an engine needs prompts like production's to be judged, beside speculative decoding. `words` are
    its command and arguments as they stand."""
    flags = {word.split("=", 1)[0].replace("_", "-") for word in words if word.startswith("--")}
    found = []
    if _EXPERTS.search(arguments.model) or flags & set(_EXPERT_FLAGS):
        found.append("a mixture of experts")
    if arguments.lora_enabled:
        found.append("LoRA adapters")
    if _MULTIMODAL.search(arguments.model) or flags & set(_MULTIMODAL_FLAGS) or not arguments.chunked_mm_input:
        found.append("multimodal input")
    return tuple(found)
