"""`$(VAR)` in a container's command and args, as the kubelet expands it.

Source: Kubernetes, "Define dependent environment variables", and its package
third_party/forked/golang/expansion: `$(NAME)` is replaced when NAME is set, else it stays as it is; `$$` is
one `$`, so `$$(NAME)` is never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


@dataclass(frozen=True)
class Expanded:
    """The text after expansion, and the names that `env` did not hold, which are still in it."""

    text: str
    unresolved: tuple[str, ...]


def expand(raw: str, env: Mapping[str, str]) -> Expanded:
    """Expand `raw` with what is known of the container's environment.

    `env` need not be complete (values from Secrets are never read), so a name that it lacks is reported.
    """
    unresolved: list[str] = []

    def replacement(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        name = found.group(1)
        if name in env:
            return env[name]
        unresolved.append(name)
        return found.group()

    return Expanded(_REFERENCE.sub(replacement, raw), tuple(unresolved))
