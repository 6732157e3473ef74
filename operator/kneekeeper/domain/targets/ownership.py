"""Who else writes an object: its controller, a release tool, or a GitOps tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kneekeeper.domain.observation import Owner

_TOOL_MARKS = (
    # (label or annotation, tool); the first that is set counts: Argo CD and Flux also apply Helm's output.
    ("argocd.argoproj.io/tracking-id", "ArgoCD"),
    ("argocd.argoproj.io/instance", "ArgoCD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
)
_HELM_LABEL = ("app.kubernetes.io/managed-by", "Helm")
RELEASE_TOOLS = frozenset({"ArgoCD", "Flux", "Helm"})


def owner_of(metadata: Mapping[str, Any]) -> Owner | None:
    """A controller first, since it writes at once; then the tools that write on their next sync."""
    for reference in metadata.get("ownerReferences") or []:
        if reference.get("controller"):
            return Owner(reference["kind"], reference["name"])
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for key, tool in _TOOL_MARKS:
        if marks.get(key):
            # A tracking id reads <application>:<group>/<kind>:<namespace>/<name>.
            return Owner(tool, str(marks[key]).partition(":")[0])
    key, tool = _HELM_LABEL
    if marks.get(key) == tool:
        return Owner(tool, marks.get("app.kubernetes.io/instance") or metadata["name"])
    return None
