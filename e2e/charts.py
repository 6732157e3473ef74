"""Both charts as they are now and as they were in the version before, real Helm, and what an install leaves behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster.binaries import HELM, ensure_built

ROOT = Path(__file__).parent.parent
LONGEST_S = 300

_PASSING = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses")
"""Kinds whose objects come and go by themselves."""
_NAMES = '{{range .items}}{{.kind}} {{or .metadata.namespace "-"}}/{{.metadata.name}}{{"\\n"}}{{end}}'


@dataclass(frozen=True)
class Charts:
    """Two charts that belong together: folders, or packages."""

    version: str
    definitions: Path
    operator: Path


PRESENT = Charts(
    yaml.safe_load((ROOT / "charts/kneekeeper/Chart.yaml").read_text(encoding="utf-8"))["version"],
    ROOT / "charts/kneekeeper-crds",
    ROOT / "charts/kneekeeper",
)
PREVIOUS = Charts(
    "0.0.1",
    ROOT / "tests/cases/charts/kneekeeper-crds-0.0.1.tgz",
    ROOT / "tests/cases/charts/kneekeeper-0.0.1.tgz",
)


def helm(kubeconfig: Path, *arguments: str) -> str:
    """What Helm prints; its complaints go to standard error. Paths are looked up from the root of the repository.

    Raises CalledProcessError.
    """
    program = ensure_built(HELM) / "helm"
    done = subprocess.run(
        [str(program), "--kubeconfig", str(kubeconfig), *arguments],
        check=True,
        timeout=LONGEST_S,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return done.stdout


def everything(kubectl: Callable[..., str]) -> set[str]:
    """`Kind namespace/name` of all objects of all kinds, but for those that come and go by themselves."""
    kinds = set(kubectl("api-resources", "--verbs=list", "-o", "name").split()) - set(_PASSING)
    return set(kubectl("get", ",".join(sorted(kinds)), "-A", "-o", f"go-template={_NAMES}").splitlines())
