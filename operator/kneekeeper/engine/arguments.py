"""vLLM's command line, parsed as vLLM 0.32 parses it.

`-` and `_` are equal inside a flag's name, unambiguous abbreviations work, the last of several wins, integers
of some flags may be written as `8k` (8,000) or `8K` (8,192), `--config FILE` (two tokens) is a YAML file whose
keys stand before the command line, and what argparse refuses ends the process with code 2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kneekeeper.engine import known_flags

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""What vLLM serves when nothing is named."""

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AUTO = -1
_SHORT_FORMS = {
    "tensor-parallel-size": "-tp",
    "pipeline-parallel-size": "-pp",
    "data-parallel-size": "-dp",
    "quantization": "-q",
    "compilation-config": "-cc",
    "speculative-config": "-sc",
    "enable-expert-parallel": "-ep",
    "api-server-count": "-asc",
}
_SWITCHES = ("enable-chunked-prefill", "enable-prefix-caching", "enforce-eager", *known_flags.SWITCHES)
_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")


class ArgumentsError(ValueError):
    """A command line that fails outside argparse, as in vLLM with a traceback and code 1."""


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """The flags that the simulation acts on, as given. None where vLLM decides later."""

    model: str
    served_model_names: tuple[str, ...]
    host: str | None
    port: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_num_active_seqs: int | None
    max_num_scheduled_tokens: int | None
    max_model_len: int | None
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    block_size: int | None
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    long_prefill_token_threshold: int
    tensor_parallel_size: int
    enforce_eager: bool
    seed: int
    api_keys: tuple[str, ...]
    root_path: str
    disable_log_stats: bool
    custom_histogram_buckets: dict[str, list[float]]
    non_default: dict[str, Any]
    """What was given and is not the default, by vLLM's names, for the log line of that name."""


def human_readable_int(text: str) -> int:
    """`2048`, `2_048`, `2k` (2,000), `2K` (2,048), `25.6k` (25,600).

    Raises ValueError, and argparse.ArgumentTypeError for a fraction of a binary unit.
    """
    text = text.strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text)
    if match is None:
        return int(text)
    number, unit = match.groups()
    if unit in _DECIMAL:
        return int(float(number) * _DECIMAL[unit])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {unit}. "
            f"Did you mean to use {number}{unit.lower()} instead?"
        )
    return int(number) * _BINARY[unit]


def parse_arguments(command_line: Sequence[str]) -> EngineArguments:
    """The arguments of `vllm serve MODEL …` (with the word `serve`) or of vLLM's api_server module.

    Raises ArgumentsError for an unusable `--config`; SystemExit with code 2 where argparse refuses.
    """
    parser = _parser("vllm serve" if command_line[:1] == ["serve"] else "api_server.py")
    words = _with_config_file(list(command_line))
    if words[:1] == ["serve"]:
        words = words[1:]
    words = _fold_dotted([_dashed(word) for word in words])
    values = vars(parser.parse_args(words))
    defaults = vars(parser.parse_args([]))
    if (tag := values.pop("model_tag")) is not None:
        values["model"] = tag
    model = values["model"]
    max_model_len = values["max_model_len"]
    names = values["served_model_name"] or [model]
    return EngineArguments(
        model=model,
        served_model_names=tuple(names),
        host=values["host"],
        port=values["port"],
        max_num_seqs=values["max_num_seqs"],
        max_num_batched_tokens=values["max_num_batched_tokens"],
        max_num_active_seqs=values["max_num_active_seqs"],
        max_num_scheduled_tokens=values["max_num_scheduled_tokens"],
        max_model_len=None if max_model_len == _AUTO else max_model_len,
        gpu_memory_utilization=values["gpu_memory_utilization"],
        kv_cache_memory_bytes=values["kv_cache_memory_bytes"],
        num_gpu_blocks_override=values["num_gpu_blocks_override"],
        block_size=values["block_size"],
        enable_chunked_prefill=values["enable_chunked_prefill"] is not False,
        enable_prefix_caching=values["enable_prefix_caching"] is not False,
        long_prefill_token_threshold=values["long_prefill_token_threshold"],
        tensor_parallel_size=values["tensor_parallel_size"],
        enforce_eager=bool(values["enforce_eager"]),
        seed=values["seed"],
        api_keys=tuple(key for key in values["api_key"] or () if key),
        root_path=values["root_path"] or "",
        disable_log_stats=values["disable_log_stats"],
        custom_histogram_buckets=values["custom_histogram_buckets"] or {},
        non_default={name: value for name, value in values.items() if value != defaults.get(name)},
    )


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="A simulated vLLM OpenAI-compatible server.")
    parser.add_argument("model_tag", nargs="?", help="the model to serve")
    parser.add_argument("--config", help="read flags from a YAML file; the command line wins")

    def value(name: str, kind: Callable[[str], Any], default: Any = None, **more: Any) -> None:
        forms = [f"--{name}"] + ([_SHORT_FORMS[name]] if name in _SHORT_FORMS else [])
        parser.add_argument(*forms, type=kind, default=default, **more)

    value("model", str, DEFAULT_MODEL)
    value("served-model-name", str, nargs="+")
    value("host", str)
    value("port", int, 8000)
    value("max-num-seqs", int)
    value("max-num-active-seqs", int)
    for name in ("max-num-batched-tokens", "max-num-scheduled-tokens", "kv-cache-memory-bytes"):
        value(name, human_readable_int)
    value("max-model-len", _int_or_auto)
    value("gpu-memory-utilization", float, 0.92)
    value("num-gpu-blocks-override", int)
    value("block-size", int)
    value("long-prefill-token-threshold", int, 0)
    value("tensor-parallel-size", int, 1)
    value("dtype", str, "auto", choices=_DTYPES)
    value("seed", int, 0)
    value("api-key", str, nargs="*")
    value("root-path", str)
    value("custom-histogram-buckets", _buckets)
    parser.add_argument("--disable-log-stats", action="store_true")
    for name in _SWITCHES:
        forms = [f"--{name}"] + ([_SHORT_FORMS[name]] if name in _SHORT_FORMS else [])
        parser.add_argument(*forms, action=argparse.BooleanOptionalAction, default=None)
    for name in known_flags.INTEGERS:
        value(name, human_readable_int if name in known_flags.HUMAN_READABLE else int)
    for name in known_flags.LISTS:
        value(name, str, nargs="+")
    for name in known_flags.VALUES:
        value(name, str)
    return parser


def _buckets(text: str) -> dict[str, list[float]]:
    """Raises ValueError for what is not a JSON object of lists of numbers."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return {str(family): [float(bound) for bound in bounds] for family, bounds in content.items()}


def _int_or_auto(text: str) -> int:
    return _AUTO if text.strip().lower() in ("-1", "auto") else human_readable_int(text)


def _dashed(word: str) -> str:
    """The flag's name with dashes; its value, and what follows a dot, as they are."""
    if word.startswith("-O") and word != "-O":
        return f"--optimization-level={word[2:].removeprefix('=')}"
    if word == "-O":
        return "--optimization-level"
    if not word.startswith("--"):
        return word
    name, equals, rest = word.partition("=")
    head, dot, keys = name.partition(".")
    return head.replace("_", "-") + dot + keys + equals + rest


def _fold_dotted(words: list[str]) -> list[str]:
    """`--flag.key value` and `--flag.key=value` become one `--flag JSON`, at the end as in vLLM."""
    kept: list[str] = []
    folded: dict[str, dict[str, Any]] = {}
    rest = iter(words)
    for word in rest:
        name, equals, text = word.partition("=")
        if not (name.startswith("-") and "." in name and not re.fullmatch(r"-[\d.]+", name)):
            kept.append(word)
            continue
        flag, *keys = name.rstrip("+").split(".")
        try:
            value: Any = text if equals else next(rest)
        except StopIteration:
            raise ArgumentsError(f"{name} needs a value") from None
        with contextlib.suppress(json.JSONDecodeError):
            value = json.loads(value)
        target = folded.setdefault(flag, {})
        for key in keys[:-1]:
            child = target.get(key)
            if not isinstance(child, dict):
                child = target[key] = {}
            target = child
        target[keys[-1]] = value
    for flag, content in folded.items():
        kept += [flag, json.dumps(content)]
    return kept


def _with_config_file(words: list[str]) -> list[str]:
    """`--config FILE` replaced by the file's flags, before the other ones so that those win."""
    if "--config" not in words:
        return words
    index = words.index("--config")
    if index == len(words) - 1:
        raise ArgumentsError("No config file specified! Please check your command-line arguments.")
    from_file = _flags_of_file(words[index + 1])
    others = words[:index] + words[index + 2 :]
    head = 0
    if others[:1] == ["serve"]:
        head = 2 if len(others) > 1 and not others[1].startswith("-") else 1
        if head == 1 and "--model" not in from_file:
            raise ArgumentsError(
                "No model specified! Please specify model either as a positional argument or in a config file."
            )
    return others[:head] + from_file + others[head:]


def _flags_of_file(path: str) -> list[str]:
    if not path.endswith((".yaml", ".yml")):
        raise ArgumentsError(f"Config file must be of a yaml/yml type. {path.split('.')[-1]} supplied")
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ArgumentsError(f"Unable to read the config file at {path}: {error}") from error
    if not isinstance(content, dict):
        raise ArgumentsError(f"The config file at {path} must hold keys and values")
    flags: list[str] = []
    for key, value in content.items():
        flag = f"--{str(key).replace('_', '-')}"
        if isinstance(value, bool):
            if value:
                flags.append(flag)
            elif flag[2:] in _SWITCHES:
                flags.append(f"--no-{flag[2:]}")
        elif isinstance(value, list):
            flags += [flag, *map(str, value)] if value else []
        else:
            flags += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags
