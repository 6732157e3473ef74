"""A tiny Llama with a byte-level tokenizer: vLLM fills it with random weights (`--load-format dummy`).

Small enough for two CPU cores, large enough that a prefill costs much more than a decode step, so that
both limits of the scheduler matter. float32, because bfloat16 is emulated on CPUs without AVX-512.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")
_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 4096,
    "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
}


def _vocabulary() -> dict[str, int]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {token: index for index, token in enumerate([*alphabet, *_SPECIAL_TOKENS])}


def _config() -> dict[str, object]:
    vocabulary = _vocabulary()
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        # One more than the tokenizer has: a bound that is not hit by accident.
        "vocab_size": len(vocabulary) + 1,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": vocabulary["<s>"],
        "eos_token_id": vocabulary["</s>"],
        "pad_token_id": vocabulary["<pad>"],
        "torch_dtype": "float32",
    }


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL_TOKENS))
    return tokenizer


def _files() -> dict[str, str]:
    return {
        "config.json": json.dumps(_config(), indent=2),
        "tokenizer.json": _tokenizer().to_str(pretty=True),
        "tokenizer_config.json": json.dumps(_TOKENIZER_CONFIG, indent=2),
    }


def digest() -> str:
    """Ten hex digits that change with the model's files; part of the folder's name in the cache."""
    return hashlib.sha256(json.dumps(_files(), sort_keys=True).encode()).hexdigest()[:10]


def is_written(folder: Path) -> bool:
    """Whether `write` has finished there: a folder of this name appears only as a whole."""
    return folder.is_dir()


def write(folder: Path) -> None:
    """Write the model's three files; does nothing when they are there already."""
    if is_written(folder):
        return
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        for name, text in _files().items():
            (partial / name).write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
