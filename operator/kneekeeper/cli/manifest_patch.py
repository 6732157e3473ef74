"""The two limits in a file of Kubernetes objects: what `kneekeeper patch` does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.manifest_files import read_file
from kneekeeper.domain.arguments import RefusalReason, WrittenLimits
from kneekeeper.domain.manifests import (
    Change,
    EditRefusedError,
    ManifestFile,
    ManifestObject,
    apply_changes,
    path_text,
)
from kneekeeper.domain.redaction import redact, redact_value
from kneekeeper.domain.targets import Answer, Asked, Edit, Objects, Outcome
from kneekeeper.domain.targets.planning import ADAPTERS, objects_with_engines, plan

EXIT_CODES = {Outcome.REWRITE: 0, Outcome.RECOMMEND_ONLY: 3, Outcome.REFUSE: 4}
USAGE = 2


def run(arguments: argparse.Namespace) -> int:
    """The whole command. Returns its exit code."""
    from kneekeeper.api.model import Setting

    setting = Setting(max_num_seqs=arguments.max_num_seqs, max_num_batched_tokens=arguments.max_num_batched_tokens)
    try:
        file = read_file(arguments.file)
        objects = Objects(file.objects)
        target = _target(objects, arguments.target)
    except CannotError as error:
        print(f"kneekeeper patch: {error}", file=sys.stderr)
        return USAGE
    answer = plan(target, objects, Asked(setting, arguments.container))
    text, answer = _written(file, answer)
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    told = _as_json(target, answer) if arguments.json else _as_text(target, answer)
    print(told, file=sys.stderr)
    return EXIT_CODES[answer.outcome]


def _target(objects: Objects, named: str | None) -> ManifestObject:
    """Raises CannotError."""
    if named is None:
        return _only_target(objects)
    kind, slash, name = named.partition("/")
    if not (kind and slash and name):
        raise CannotError(f"--target {named!r} has not the form KIND/NAME. {_choices(objects)}")
    found = [o for o in objects.items if o.kind.lower() == kind.lower() and o.name == name]
    if len(found) > 1:
        found = [o for o in found if (o.api_group, o.kind) in ADAPTERS]
    if not found:
        raise CannotError(f"The file holds no {named}. {_choices(objects)}")
    if len(found) > 1:
        raise _same_name(found)
    return found[0]


def _same_name(found: Sequence[ManifestObject]) -> CannotError:
    places = ", ".join(f"{o.api_version} in namespace {o.namespace or '(none)'}" for o in found)
    return CannotError(
        f"Several objects are called {found[0].kind}/{found[0].name}: {places}. Put the one that you mean into a file "
        "of its own."
    )


def _only_target(objects: Objects) -> ManifestObject:
    found = objects_with_engines(objects)
    if len(found) == 1:
        return found[0]
    names = list(dict.fromkeys(f"{o.kind}/{o.name}" for o in found))
    if not names:
        raise CannotError(f"No object of the file is known to run vLLM. Name it with --target. {_choices(objects)}")
    if len(names) == 1:
        raise _same_name(found)
    raise CannotError(f"Several objects run vLLM: {', '.join(names)}. Name one with --target.")


def _choices(objects: Objects) -> str:
    return f"It holds: {', '.join(f'{o.kind}/{o.name}' for o in objects.items)}."


def _written(file: ManifestFile, answer: Answer) -> tuple[str, Answer]:
    """The file's text with the edits, or as it was where nothing may be written."""
    if answer.outcome is not Outcome.REWRITE or not answer.edits:
        return file.text, answer
    subject = answer.edits[0].subject
    changes = [Change(edit.path, edit.value) for edit in answer.edits]
    try:
        return apply_changes(file, subject, changes), answer
    except EditRefusedError as error:
        refused = Answer(
            Outcome.REFUSE, RefusalReason.NOT_UNDERSTOOD, str(error), answer.part, answer.engine, answer.edits
        )
        return file.text, refused


def _as_json(target: ManifestObject, answer: Answer) -> str:
    changed = [_edit(edit) for edit in answer.edits]
    rewritten = answer.outcome is Outcome.REWRITE
    told = {
        "outcome": answer.outcome,
        "target": f"{target.kind}/{target.name}",
        "namespace": target.namespace,
        "container": answer.part,
        "values_before": _before(answer),
        "reason": redact(answer.message),
        "reason_code": answer.reason,
        "warnings": [redact(warning) for warning in answer.warnings],
        "changes": changed if rewritten else [],
        "suggested_change": [] if rewritten else changed,
    }
    return json.dumps(told)


def _before(answer: Answer) -> dict[str, str] | None:
    if answer.engine is None:
        return None
    limits: WrittenLimits = answer.engine.before
    return {
        "max_num_seqs": limits.max_num_seqs or "default",
        "max_num_batched_tokens": limits.max_num_batched_tokens or "default",
    }


def _edit(edit: Edit) -> dict[str, Any]:
    subject = edit.subject
    return {
        "kind": subject.kind,
        "name": subject.name,
        "namespace": subject.namespace,
        "path": path_text(edit.path, subject.value),
        "pointer": "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in edit.path),
        "value": redact_value(edit.value),
    }


def _as_text(target: ManifestObject, answer: Answer) -> str:
    where = f"{target.kind}/{target.name}" + (f", container {answer.part}" if answer.part else "")
    lines = [f"{answer.outcome}: {where}: {redact(answer.message)}"]
    before = _before(answer)
    if before is not None:
        lines.append(f"  before: {', '.join(f'{name}={text}' for name, text in before.items())}")
    verb = "changed" if answer.outcome is Outcome.REWRITE else "suggested"
    for edit in answer.edits:
        told = _edit(edit)
        lines.append(f"  {verb}: {told['kind']}/{told['name']} {told['path']}: {json.dumps(told['value'])}")
    lines += [f"  warning: {redact(warning)}" for warning in answer.warnings]
    return "\n".join(lines)
