"""Kinds of other projects, served without a schema: for tests that only need their objects to be taken."""

from __future__ import annotations

from kneekeeper.kube.resources import Resource


def definition(api_version: str, kind: str) -> Resource:
    """The CustomResourceDefinition of a namespaced kind with a plural in -s."""
    group, version = api_version.split("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
