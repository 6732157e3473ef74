"""Short forms of what a profile writes in YAML: `maxRestarts=5,startTimeout=10m`, `seqs=8..256`, a workload's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import SecretStr, ValidationError

from kneekeeper.api.model import ApiModel, LocalReference
from kneekeeper.api.serving_profile import Bounds, Parameters
from kneekeeper.api.workload import (
    ArrivalProcess,
    ArrivalSpec,
    LengthDistribution,
    SourceRef,
    TokenLengths,
    Workload,
)
from kneekeeper.cli.ending import CannotError

_Model = TypeVar("_Model", bound=ApiModel)

_ON_THIS_MACHINE = SourceRef(config_map_ref=LocalReference(name="local-file"))
"""The profile says that there is a file; where it lies, the load is told apart from it."""

_LIMITS = {
    "seqs": "max_num_seqs",
    "maxNumSeqs": "max_num_seqs",
    "max-num-seqs": "max_num_seqs",
    "tokens": "max_num_batched_tokens",
    "maxNumBatchedTokens": "max_num_batched_tokens",
    "max-num-batched-tokens": "max_num_batched_tokens",
}


def pairs(option: str, text: str) -> dict[str, str]:
    """`a=1,b=2` as a dict; a comma more, as at the end, says nothing. Raises CannotError."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or not value:
            raise CannotError(f"{option}: {part!r} is not NAME=VALUE")
        if name.strip() in found:
            raise CannotError(f"{option}: {name.strip()!r} stands twice; leave one of them out")
        found[name.strip()] = value.strip()
    return found


def fields_of(option: str, text: str | None, kind: type[_Model]) -> _Model:
    """A part of a profile from `name=value,…` with the names that the profile has. Raises CannotError."""
    values: dict[str, Any] = {}
    names = {field.alias or name: field for name, field in kind.model_fields.items()}
    for name, value in pairs(option, text or "").items():
        if name not in names:
            raise CannotError(f"{option}: there is no {name!r}; there are {', '.join(names)}")
        counts = int in (names[name].annotation, *get_args(names[name].annotation))
        values[name] = int(value) if counts and value.isdecimal() else value  # a duration has a unit
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        usual = kind().model_dump(mode="json", by_alias=True)
        wrong = {str(place) for fault in error.errors() for place in fault["loc"][:1]}
        example = ",".join(f"{name}={value}" for name, value in usual.items() if name in wrong)
        raise CannotError(f"{option}: {explain(error)}; write it like {example}") from error


def bounds_of(text: str | None) -> Parameters:
    """`seqs=8..256,tokens=512..8192`; either end may be left out. Raises CannotError."""
    limits: dict[str, Bounds] = {}
    for name, value in pairs("--bounds", text or "").items():
        if name not in _LIMITS:
            raise CannotError(f"--bounds: there is no {name!r}; write seqs=8..256,tokens=512..8192")
        if _LIMITS[name] in limits:
            raise CannotError(f"--bounds: {name!r} names the same limit again; leave one of them out")
        low, dots, high = value.partition("..")
        if not dots or any(end and not end.isdecimal() for end in (low, high)):
            raise CannotError(f"--bounds: {value!r} is no range; write it like 8..256, 8.. or ..256")
        try:
            limits[_LIMITS[name]] = Bounds(min=int(low) if low else None, max=int(high) if high else None)
        except ValidationError as error:
            raise CannotError(f"--bounds {name}: {explain(error)}") from error
    return Parameters(**limits)


def workload_of(path: Path | None, default: Workload) -> Workload:
    """The workload section of a profile, from a YAML file with or without the key `workload`. Raises CannotError."""
    if path is None:
        return default
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise CannotError(f"--workload: {path} cannot be read: {in_one_line(error)}") from error
    if isinstance(content, dict) and "workload" in content:
        content = content["workload"]
    try:
        workload = Workload.model_validate(content)
    except ValidationError as error:
        raise CannotError(f"--workload: {path}: {explain(error)}") from error
    if workload.trace_ref is not None or workload.prompts is not None:
        raise CannotError(
            f"--workload: {path}: traceRef and prompts name objects of a cluster, and there is none here; "
            "give the files by --trace and --prompts"
        )
    return workload


def with_files(workload: Workload, trace: Path | None, prompts: Path | None) -> Workload:
    """The workload with a trace's times and lengths, and with real prompts. Raises CannotError."""
    for option, path in (("--trace", trace), ("--prompts", prompts)):
        if path is not None and not path.is_file():
            raise CannotError(f"{option}: {path} is no file")
    values: dict[str, Any] = {}
    if trace is not None:
        values["arrivals"] = ArrivalSpec(process=ArrivalProcess.TRACE)
        values["prompt_tokens"] = values["output_tokens"] = TokenLengths(distribution=LengthDistribution.TRACE)
        values["trace_ref"] = _ON_THIS_MACHINE
    if prompts is not None:
        values["prompts"] = _ON_THIS_MACHINE
    try:
        return workload.with_changes(**values)
    except ValidationError as error:
        raise CannotError(f"--trace and --prompts: {explain(error)}") from error


def api_key_of(path: Path | None) -> SecretStr | None:
    """The key in a file of one line. Raises CannotError."""
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotError(f"--api-key-file: {path} cannot be read: {in_one_line(error)}") from error
    if not key or not key.isascii() or not key.isprintable():
        raise CannotError(f"--api-key-file: {path} does not hold one line of printable ASCII")
    return SecretStr(key)


def explain(error: ValidationError) -> str:
    """Field and fault of each error in one line."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    told = [(".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")) for fault in faults]
    return "; ".join(f"{place}: {what}" if place else what for place, what in told)


def in_one_line(error: Exception) -> str:
    """What went wrong, without the name that the message around it has already."""
    told = error.strerror if isinstance(error, OSError) else None
    return told or " ".join(str(error).split())
