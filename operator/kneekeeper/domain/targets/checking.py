"""Whether a vLLM version starts with an engine's arguments, and whether they contradict each other."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.domain.arguments import EngineArguments
from kneekeeper.domain.arguments.flag_versions import FIRST_WITHOUT_SWITCH_VALUES, LAST_WITHOUT_SUFFIXES, LIFETIMES
from kneekeeper.domain.arguments.flags import NEGATIONS
from kneekeeper.domain.engine_version import EngineVersion, InvalidEngineVersionError
from kneekeeper.domain.engines import floor_of_tokens
from kneekeeper.domain.targets.model import Engine


@dataclass(frozen=True)
class Finding:
    """One argument with which vLLM does not start; `message` ends with the next step."""

    flag: str
    message: str


def version_of_image(image: str) -> EngineVersion | None:
    """The release that an image's tag names; None for a digest, `latest` and the like."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    try:
        return EngineVersion.parse(tag)
    except InvalidEngineVersionError:
        return None


def check(engine: Engine, version: EngineVersion | None) -> list[Finding]:
    """Everything that is wrong; without a version only what is wrong in every version."""
    findings = _contradictions(engine.arguments)
    return findings if version is None else [*_flags(engine, version), *findings]


def _flags(engine: Engine, version: EngineVersion) -> list[Finding]:
    findings: list[Finding] = []
    for flag in engine.arguments.given_flags:
        life = LIFETIMES.get(flag)
        if life is None:
            continue
        if life.no_longer is not None and version >= life.no_longer:
            findings.append(Finding(flag, f"{flag} does not exist in vLLM {version} any more. {life.instead}"))
        elif life.not_yet is not None and version <= life.not_yet:
            findings.append(Finding(flag, f"{flag} does not exist in vLLM {version} yet. {life.instead}"))
    for flag in engine.arguments.switches_with_value:
        if version >= FIRST_WITHOUT_SWITCH_VALUES:
            off = f"--no-{flag[2:]}" if f"--no-{flag[2:]}" in NEGATIONS else "leave it out"
            findings.append(Finding(flag, f"{flag} takes no value in vLLM {version}. Write {flag}, or {off}."))
    tokens = engine.before.max_num_batched_tokens or engine.before.file_max_num_batched_tokens or ""
    if tokens.strip()[-1:].isalpha() and version <= LAST_WITHOUT_SUFFIXES:
        message = f"vLLM {version} does not read {tokens} as a number. Write the digits out."
        findings.append(Finding("--max-num-batched-tokens", message))
    return findings


def _contradictions(arguments: EngineArguments) -> list[Finding]:
    findings: list[Finding] = []
    sequences, tokens, active = (
        arguments.max_num_seqs,
        arguments.max_num_batched_tokens,
        arguments.max_num_active_seqs,
    )
    if active is not None and sequences is not None and active > sequences:
        message = f"max_num_active_seqs {active} is above max_num_seqs {sequences}. Lower it, or remove it."
        findings.append(Finding("--max-num-active-seqs", message))
    floor = floor_of_tokens(arguments, sequences or 1)
    if tokens is not None and floor.tokens is not None and tokens < floor.tokens:
        message = f"max_num_batched_tokens is {tokens}: {floor.rule} ({floor.tokens}). {floor.next_step}"
        findings.append(Finding("--max-num-batched-tokens", message))
    return findings
