"""Arguments with which vLLM would not start: what `kneekeeper check` does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.manifest_files import read_file
from kneekeeper.domain.arguments import Refusal, RefusalReason
from kneekeeper.domain.engine_version import EngineVersion, InvalidEngineVersionError
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.targets import Engine, Objects
from kneekeeper.domain.targets.checking import check, version_of_image
from kneekeeper.domain.targets.planning import engines_in, objects_with_engines

INVALID, USAGE, UNREAD = 1, 2, 4

# Refusals that vLLM's own parser would make too.
_INVALID_REASONS = (RefusalReason.INVALID_VALUE, RefusalReason.MISSING_VALUE, RefusalReason.AMBIGUOUS_FLAG)


@dataclass(frozen=True)
class _Report:
    """What was found of one engine."""

    target: str
    container: str | None
    version: EngineVersion | None
    problems: tuple[str, ...]
    code: int


def run(arguments: argparse.Namespace) -> int:
    """The whole command. Returns its exit code."""
    try:
        version = EngineVersion.parse(arguments.engine_version) if arguments.engine_version else None
        objects = Objects(read_file(arguments.file).objects)
    except (CannotError, InvalidEngineVersionError) as error:
        print(f"kneekeeper check: {error}", file=sys.stderr)
        return USAGE
    reports = [report for item in objects_with_engines(objects) for report in _reports(item, objects, version)]
    if not reports:
        held = ", ".join(f"{item.kind}/{item.name}" for item in objects.items)
        told = f"no object of the file is known to run vLLM. Check the path of --file; it holds: {held}."
        print(f"kneekeeper check: {told}", file=sys.stderr)
        return USAGE
    for report in reports:
        print(_as_json(report) if arguments.json else _as_text(report))
    codes = {report.code for report in reports}
    return INVALID if INVALID in codes else max(codes)


def _reports(item: ManifestObject, objects: Objects, asked: EngineVersion | None) -> Iterator[_Report]:
    target = f"{item.kind}/{item.name}"
    for engine in engines_in(item, objects):
        if isinstance(engine, Engine):
            version = asked or version_of_image(engine.image)
            problems = tuple(finding.message for finding in check(engine, version))
            yield _Report(target, engine.part, version, problems, INVALID if problems else 0)
        else:
            yield _Report(target, None, asked, (engine.message,), _code(engine))


def _code(refusal: Refusal) -> int:
    return INVALID if refusal.reason in _INVALID_REASONS else UNREAD


def _as_json(report: _Report) -> str:
    return json.dumps(
        {
            "target": report.target,
            "container": report.container,
            "engine_version": str(report.version) if report.version else None,
            "valid": None if report.code == UNREAD else not report.problems,
            "problems": list(report.problems),
        }
    )


def _as_text(report: _Report) -> str:
    where = report.target + (f", container {report.container}" if report.container else "")
    which = f"vLLM {report.version}" if report.version else "any vLLM (its version is not known: --engine-version)"
    if not report.problems:
        return f"{where}: {which} accepts the arguments."
    return "\n".join(f"{where}: {problem}" for problem in report.problems)
