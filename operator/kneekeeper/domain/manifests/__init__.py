"""Kubernetes manifests as text: objects are read, and single values changed, with all else byte for byte.

`source` reads a file into objects with the positions of their values, `values` compares and changes plain
data, `editing` writes a change into the text and proves it by reading the text again.
"""

from kneekeeper.domain.manifests.editing import EditRefusedError, apply_changes, edit_text
from kneekeeper.domain.manifests.source import ManifestFile, ManifestObject, NotAManifestError, read_manifests
from kneekeeper.domain.manifests.values import Change, Path, path_text, value_at, with_changes

__all__ = [
    "Change",
    "EditRefusedError",
    "ManifestFile",
    "ManifestObject",
    "NotAManifestError",
    "Path",
    "apply_changes",
    "edit_text",
    "path_text",
    "read_manifests",
    "value_at",
    "with_changes",
]
