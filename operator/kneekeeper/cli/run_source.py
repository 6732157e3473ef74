"""Which run is meant: one of the cluster, or one in a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, read_profile
from kneekeeper.cli.ending import CannotError

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.api.tuning_run import TuningRun


@dataclass(frozen=True)
class MeasuredRun:
    """A run with stages, and its profile where that is at hand."""

    run: TuningRun
    profile: ServingProfile | None
    newer: str | None = None
    """A newer measured run that was passed over."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """PROFILE, --run and --run-file, and the cluster's options."""
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a ServingProfile of the cluster")
    parser.add_argument(
        "--run", dest="run_name", metavar="RUN", help="one of its TuningRuns (default: the newest measured)"
    )
    parser.add_argument(
        "--run-file",
        type=Path,
        metavar="FILE",
        help="instead of the cluster: YAML or JSON of kubectl get sp,tr -o yaml, or run.json of `tune --state`",
    )
    add_cluster_options(parser)


def find_run(arguments: argparse.Namespace, suits: Callable[[TuningRun], bool] | None = None) -> MeasuredRun:
    """The run that the options mean. Where none is named, the newest that `suits`, if one does. Raises CannotError."""
    if (arguments.profile is None) == (arguments.run_file is None):
        raise CannotError("name a ServingProfile of the cluster, or a file with --run-file")
    if arguments.run_file is not None:
        runs, profiles = read_objects(arguments.run_file)
    else:
        runs, profiles = in_cluster(arguments, lambda scope: _of_cluster(scope, arguments.profile))
    newest = run = choose_run(runs, arguments.run_name)
    if suits is not None and arguments.run_name is None:
        run = next((each for each in reversed(runs) if suits(each)), newest)
    names = (run.metadata.get("namespace"), run.spec.profile_name)
    own = [p for p in profiles if (p.metadata.get("namespace"), p.metadata.get("name")) == names]
    newer = None if run is newest else str(newest.metadata.get("name"))
    return MeasuredRun(run, own[0] if own else None, newer)


def choose_run(runs: Sequence[TuningRun], name: str | None) -> TuningRun:
    """The run of this name, else the newest that has stages. Raises CannotError."""
    if name is not None:
        found = [run for run in runs if run.metadata.get("name") == name]
        if not found:
            names = ", ".join(str(run.metadata.get("name")) for run in runs) or "none"
            raise CannotError(f"there is no run {name} (any more); there are: {names}")
        return found[-1]
    measured = [run for run in runs if run.status.stages]
    if not measured:
        raise CannotError("nothing was measured yet; `kneekeeper runs` tells what each run waits for")
    return measured[-1]


async def _of_cluster(scope: Scope, name: str) -> tuple[list[TuningRun], list[ServingProfile]]:
    from kneekeeper.observe.own_resources import read_runs_of

    profile = await read_profile(scope, name)
    return list(await read_runs_of(scope.kube, scope.namespace, name)), [profile]


def read_objects(path: Path) -> tuple[list[TuningRun], list[ServingProfile]]:
    """The runs, in the order of the file, and the profiles of a file. Raises CannotError."""
    import yaml

    from kneekeeper.cli.fields import in_one_line
    from kneekeeper.domain.manifests.source import VALUE_LOADER, YAML_ERRORS

    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=VALUE_LOADER))
    except (OSError, *YAML_ERRORS) as error:
        raise CannotError(f"--run-file: {path} cannot be read: {in_one_line(error)}") from error
    return objects_of(documents, str(path))


def objects_of(documents: Sequence[Any], where: str) -> tuple[list[TuningRun], list[ServingProfile]]:
    """The same of parsed documents: resources, lists of them, or the state of `kneekeeper tune`. Raises CannotError."""
    from pydantic import ValidationError

    from kneekeeper.cli.fields import explain
    from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS
    from kneekeeper.local.state import TuneState
    from kneekeeper.observe.own_resources import UnreadableResource, parse_profile, parse_run

    runs: list[TuningRun] = []
    profiles: list[ServingProfile] = []
    try:
        for item in _items(documents):
            if item.get("kind") == TUNING_RUNS.name:
                runs.append(parse_run(item))
            elif item.get("kind") == SERVING_PROFILES.name:
                profiles.append(parse_profile(item))
            elif "words" in item and "status" in item:
                runs.append(TuneState.model_validate(item).run())
    except UnreadableResource as error:
        raise CannotError(f"--run-file: {where}: {error}") from error
    except ValidationError as error:
        raise CannotError(f"--run-file: {where}: {explain(error)}") from error
    if not runs:
        raise CannotError(f"--run-file: {where} holds no TuningRun; write it with kubectl get sp,tr -o yaml")
    return runs, profiles


def _items(documents: Sequence[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items")
            found += _items(items) if isinstance(items, list) else [document]
    return found
