"""From a container's words to `EngineArguments`, or to the reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kneekeeper.domain.arguments.config_file import path_of_config, scan_with_file, words_of_config
from kneekeeper.domain.arguments.flags import FLAGS, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, Arity
from kneekeeper.domain.arguments.model import (
    DEFAULT_PORT,
    EngineArguments,
    Scheme,
    SpeculativeDecoding,
    WrittenLimits,
)
from kneekeeper.domain.arguments.numbers import parse_human_integer, parse_integer, parse_model_length
from kneekeeper.domain.arguments.program import ImageEntrypoint, Launch, Program, find_launch
from kneekeeper.domain.arguments.refusal import Refusal, RefusalReason, RefusedError
from kneekeeper.domain.arguments.scan import Occurrence, Scan, Value, scan, truth_of
from kneekeeper.domain.arguments.words import words_of

_NO_FILES: Mapping[str, str] = {}
_POOLING_FLAGS = {
    "--runner": frozenset({"pooling"}),
    "--convert": frozenset({"embed", "classify", "reward"}),
    "--task": frozenset({"embed", "embedding", "classify", "score", "reward", "pooling"}),
}


def read_engine_arguments(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    *,
    entrypoint: ImageEntrypoint = ImageEntrypoint.UNCONFIRMED,
    files: Mapping[str, str] = _NO_FILES,
) -> EngineArguments | Refusal:
    """What vLLM makes of a container's words.

    `env` are the container's variables as far as they are known (an `Environment`, or a mapping that is taken
    for complete), with ConfigMap values resolved and without those of Secrets. `entrypoint` says what the image
    starts by itself (see `entrypoint_of_image`). `files` are the texts that a `--config` may name, by path.
    Returns a Refusal with the piece that was not understood; nothing is guessed.
    """
    try:
        launch = find_launch(words_of(command, args, env), entrypoint, env)
        return _Reader(scan_with_file(launch.arguments, files)).read(launch)
    except RefusedError as refused:
        return refused.refusal


def read_written_limits(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    *,
    entrypoint: ImageEntrypoint = ImageEntrypoint.UNCONFIRMED,
    files: Mapping[str, str] = _NO_FILES,
) -> WrittenLimits | Refusal:
    """The texts that give the two limits today, in the words and in the config file; see `read_engine_arguments`."""
    try:
        launch = find_launch(words_of(command, args, env), entrypoint, env)
        given = scan(launch.arguments)
        in_file = scan(words_of_config(given.occurrences, files))
    except RefusedError as refused:
        return refused.refusal
    return WrittenLimits(
        max_num_seqs=_last_text(given, MAX_NUM_SEQS),
        max_num_batched_tokens=_last_text(given, MAX_NUM_BATCHED_TOKENS),
        file_max_num_seqs=_last_text(in_file, MAX_NUM_SEQS),
        file_max_num_batched_tokens=_last_text(in_file, MAX_NUM_BATCHED_TOKENS),
        config_path=path_of_config(given.occurrences),
    )


def _last_text(found: Scan, flag: str) -> str | None:
    texts = [o.values[0].text for o in found.occurrences if o.name == flag]
    return texts[-1] if texts else None


class _Reader:
    """The flags of one scan by name; of several occurrences the last one counts, as in argparse."""

    def __init__(self, found: Scan) -> None:
        self._scan = found
        self._last: dict[str, Occurrence] = {occurrence.name: occurrence for occurrence in found.occurrences}

    def read(self, launch: Launch) -> EngineArguments:
        self._refuse_what_has_no_generation_server()
        model = self._model(launch.program)
        names = tuple(_known(value) for value in self._values("--served-model-name"))
        tls = self._has("--ssl-certfile") or self._has("--ssl-keyfile")
        return EngineArguments(
            model=model,
            served_model_names=names or (model,),
            max_num_seqs=self._number(MAX_NUM_SEQS, parse_integer),
            max_num_batched_tokens=self._number(MAX_NUM_BATCHED_TOKENS, parse_human_integer),
            max_num_active_seqs=self._number("--max-num-active-seqs", parse_integer),
            max_num_scheduled_tokens=self._number("--max-num-scheduled-tokens", parse_human_integer),
            max_model_len=self._number("--max-model-len", parse_model_length),
            port=self._number("--port", parse_integer) or DEFAULT_PORT,
            host=self._text_if_known("--host"),
            root_path=self._text("--root-path") or "",
            scheme=Scheme.HTTPS if tls else Scheme.HTTP,
            api_key_required=self._requires_api_key(launch.env),
            chunked_prefill=self._switch("--enable-chunked-prefill", True),
            chunked_mm_input=not self._switch("--disable-chunked-mm-input", False),
            speculative=self._speculative(),
            tensor_parallel_size=self._number("--tensor-parallel-size", parse_integer) or 1,
            pipeline_parallel_size=self._number("--pipeline-parallel-size", parse_integer) or 1,
            data_parallel_size=self._number("--data-parallel-size", parse_integer) or 1,
            lora_enabled=self._switch("--enable-lora", False),
            kv_role=_text_of(self._json("--kv-transfer-config"), "kv_role"),
            log_stats=not self._switch("--disable-log-stats", False),
            stream_interval=self._number("--stream-interval", parse_integer) or 1,
            unknown_flags=tuple(o.key for o in self._scan.occurrences if not o.known),
            given_flags=tuple(dict.fromkeys(o.name.partition(".")[0] for o in self._scan.occurrences)),
            switches_with_value=tuple(o.name for o in self._scan.occurrences if o.values and _is_switch(o.name)),
        )

    def _refuse_what_has_no_generation_server(self) -> None:
        for flag, pooling in _POOLING_FLAGS.items():
            if self._text(flag) in pooling:
                raise RefusedError(
                    RefusalReason.POOLING_MODEL,
                    f"{flag} {self._text(flag)}",
                    "A pooling model generates no tokens, so TTFT and TPOT do not exist",
                    "Remove the profile, or point it at a generating model.",
                )
        for flag in ("--headless", "--grpc", "--uds"):
            if self._has(flag):
                raise RefusedError(
                    RefusalReason.NO_HTTP_SERVER,
                    flag,
                    "This engine has no HTTP server on a TCP port of its own",
                    "Point the profile at the workload whose pods serve HTTP.",
                )

    def _model(self, program: Program) -> str:
        by_flag = [_known(o.values[0]) for o in self._scan.occurrences if o.name == "--model"]
        positionals = list(self._scan.positionals)
        if positionals and (program is Program.MODULE or len(positionals) > 1 or by_flag):
            stray = positionals[-1].text
            blanks = " with blanks at its ends" if stray.strip() and stray != stray.strip() else ""
            raise RefusedError(
                RefusalReason.NOT_UNDERSTOOD,
                stray,
                f"{'A word' if stray.strip() else 'An empty word'}{blanks} belongs to no flag and is not the model",
                "Remove it, or write it behind its flag.",
            )
        if positionals:
            return _known(Value(positionals[0].text, positionals[0].unresolved, positionals[0]))
        if by_flag and (program is Program.MODULE or len(set(by_flag)) == 1):
            return by_flag[-1]
        loose = [word.text for o in self._scan.occurrences for word in o.loose]
        raise RefusedError(
            RefusalReason.MODEL_UNKNOWN,
            " ".join(by_flag or loose),
            "The arguments do not say for certain which model is served",
            "Name it once: `vllm serve MODEL`, or --model=MODEL.",
        )

    def _requires_api_key(self, env: Mapping[str, str]) -> bool:
        return bool(env.get("VLLM_API_KEY")) or any(key.text for key in self._values("--api-key"))

    def _has(self, flag: str) -> bool:
        occurrence = self._last.get(flag)
        return occurrence is not None and (bool(occurrence.values) or not occurrence.negated)

    def _values(self, flag: str) -> tuple[Value, ...]:
        occurrence = self._last.get(flag)
        return occurrence.values if occurrence is not None else ()

    def _text(self, flag: str) -> str | None:
        values = self._values(flag)
        return _known(values[0]) if values else None

    def _text_if_known(self, flag: str) -> str | None:
        values = self._values(flag)
        return values[0].text if values and not values[0].unresolved else None

    def _switch(self, flag: str, default: bool) -> bool:
        occurrence = self._last.get(flag)
        if occurrence is None:
            return default
        for value in occurrence.values:
            _known(value)
        return truth_of(occurrence)

    def _number(self, flag: str, parse: Callable[[str], int | None]) -> int | None:
        """The last value; every earlier one must be a number too, as argparse parses them all."""
        number = None
        for occurrence in self._scan.occurrences:
            if occurrence.name != flag:
                continue
            text = _known(occurrence.values[0])
            try:
                number = parse(text)
            except ValueError:
                raise _invalid(flag, text, "vLLM does not read it as a number for this flag") from None
            if number is not None and number < 1:
                raise _invalid(flag, text, "It must be at least 1")
        return number

    def _speculative(self) -> SpeculativeDecoding | None:
        config = self._json("--speculative-config")
        by_flag = {
            "method": self._text("--spec-method"),
            "model": self._text("--spec-model"),
            "num_speculative_tokens": self._number("--spec-tokens", parse_integer),
        }
        config |= {key: value for key, value in by_flag.items() if value is not None}
        if not config:
            return None
        drafted = config.get("num_speculative_tokens")
        return SpeculativeDecoding(
            _text_of(config, "method"), drafted if type(drafted) is int and drafted > 0 else None
        )

    def _json(self, flag: str) -> dict[str, Any]:
        """The object of a JSON flag. Keys that are given one by one replace the whole of it, as in vLLM."""
        single = {
            o.name.removeprefix(f"{flag}."): _json_value(_known(o.values[0]))
            for o in self._scan.occurrences
            if o.name.startswith(f"{flag}.")
        }
        text = self._text(flag)
        if single or text is None or text == "None":
            return single
        value = _json_value(text)
        if not isinstance(value, dict):
            raise _invalid(flag, text, "It is not a JSON object")
        return value


def _is_switch(name: str) -> bool:
    return FLAGS.get(name) in (Arity.SWITCH, Arity.PLAIN_SWITCH)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text_of(config: Mapping[str, Any], key: str) -> str | None:
    value = config.get(key)
    return value if isinstance(value, str) else None


def _known(value: Value) -> str:
    """The value's text. Raises RefusedError where a variable in it is not known."""
    if value.unresolved:
        raise RefusedError(
            RefusalReason.UNRESOLVED_VARIABLE,
            value.word.raw,
            f"The value of {', '.join(value.unresolved)} is not known",
            "Set it by a literal value or a ConfigMap, or write the value out.",
        )
    return value.text


def _invalid(flag: str, text: str, problem: str) -> RefusedError:
    return RefusedError(RefusalReason.INVALID_VALUE, f"{flag}={text}", problem, "Correct the value.")
