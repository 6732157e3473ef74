from __future__ import annotations

import pytest

from kneekeeper.domain.arguments import EngineArguments, read_engine_arguments
from kneekeeper.domain.representative import misjudged_parts


def parts_of(model: str, *words: str) -> tuple[str, ...]:
    arguments = read_engine_arguments(["vllm", "serve", model], list(words), {})
    assert isinstance(arguments, EngineArguments)
    return misjudged_parts(arguments, words)


@pytest.mark.parametrize(
    "model", ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "tiny"]
)
def test_a_plain_model_is_judged_by_drawn_prompts(model):
    assert parts_of(model) == ()


@pytest.mark.parametrize(
    "model",
    ["mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3"],
)
def test_a_mixture_of_experts_is_known_by_its_name(model):
    assert parts_of(model) == ("a mixture of experts",)


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-VL-7B-Instruct", "llava-hf/llava-1.5-7b-hf", "google/gemma-3-27b-it"])
def test_a_multimodal_model_is_known_by_its_name(model):
    assert parts_of(model) == ("multimodal input",)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--enable-expert-parallel"], ("a mixture of experts",)),
        (["--enable_eplb"], ("a mixture of experts",)),
        (["--enable-lora"], ("LoRA adapters",)),
        (['--limit-mm-per-prompt={"image":2}'], ("multimodal input",)),
        (["--disable-chunked-mm-input", "--enable-lora"], ("LoRA adapters", "multimodal input")),
    ],
)
def test_arguments_tell_it_too(words, parts):
    assert parts_of("tiny", *words) == parts
