"""Every label, annotation, finalizer and child name that kneekeeper uses, in one place.

Names of children are derived from their owner, so that doing a thing twice finds what was made before.
"""

from __future__ import annotations

import hashlib

from kneekeeper.api.model import GROUP

FINALIZER = f"{GROUP}/finalizer"
FIELD_MANAGER = "kneekeeper"

LABEL_RUN = f"{GROUP}/run"
LABEL_ROLE = f"{GROUP}/role"
ROLE_AGENT = "agent"
ROLE_CLONE = "clone"
ROLE_SAMPLES = "samples"

ANNOTATION_RETUNE = f"{GROUP}/retune"
ANNOTATION_APPROVE = f"{GROUP}/approve"
ANNOTATION_CONFIG = f"{GROUP}/config"
"""Of a pod template: the digest of the config file that its pods were started for."""

USER_ID = 10001
"""Of the operator's image, also where it runs as a load agent or delivers the plugin."""

AGENT_PORT = 8080
AGENT_CA_FILE = "/var/run/kneekeeper/ca/ca.crt"
"""Where the certificates to trust lie in the agent's pod."""
TOKEN_KEY = "token"

_MAX_NAME = 63
"""A run's name is a label of its children, and a Job's name one of its pods."""
_SUFFIX_ROOM = 16
_DIGEST = 8


def run_name(profile: str, token: str) -> str:
    """The run's name; `token` tells runs of one profile apart."""
    return f"{_cut(profile, _MAX_NAME - _SUFFIX_ROOM - len(token) - 1)}-{token}"


def clone_name(run: str, start: int) -> str:
    """The pod of the run's `start`-th engine start."""
    return _child(run, f"clone-{start}")


def agent_name(run: str) -> str:
    """The Job of the load agents; its Secret has the same name. Behind it their pods' host names have a number."""
    return _child(run, "agent", _MAX_NAME - len("-15"))


def limits_name(profile: str) -> str:
    """The ConfigMap that production's engines take their limits from."""
    return _child(profile, "limits")


def _child(run: str, what: str, longest: int = _MAX_NAME) -> str:
    """`<run>-<what>`; of a run whose name is too long for that, its begin and a digest of the whole."""
    name = f"{run}-{what}"
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(run.encode()).hexdigest()[:_DIGEST]
    return f"{_cut(run, longest - len(what) - _DIGEST - 2)}-{digest}-{what}"


def _cut(name: str, length: int) -> str:
    """The begin of a name, such that something may follow behind a dash."""
    return name[:length].rstrip("-.")


def samples_name(run: str, stage: str) -> str:
    """The ConfigMap that holds one stage's samples."""
    return f"{run}-{stage}"


def stage_id(stage: str, clone_uid: str) -> str:
    """The stage as its agent knows it: another clone makes it another stage."""
    return f"{stage}-{hashlib.sha256(clone_uid.encode()).hexdigest()[:8]}"
