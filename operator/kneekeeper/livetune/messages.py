"""What the channel says: JSON of one protocol version, read and written here only.

`GET /v1/limits` answers how it stands, `PUT /v1/limits` asks for other values with a body of both limits and
answers the same. Statuses: 200, 400 (no such body), 401 (no or a wrong token), 404, 409 (refused: the values, or
this engine at all). Errors have `reason` and `message`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from .limits import Envelope, Limits, Refusal, Standing

PROTOCOL = 2
"""Raised with every change that an older operator or plugin would misread."""

PATH = "/v1/limits"
DEFAULT_PORT = 8719
MAX_BODY_BYTES = 1024


class MalformedMessage(ValueError):
    """A body that this protocol does not know."""


@dataclass(frozen=True)
class Report:
    """One answer of a plugin. `envelope` and `standing` are None where `unsupported` says why there is nothing."""

    protocol: int
    engine_version: str
    envelope: Envelope | None = None
    standing: Standing | None = None
    heartbeat_timeout_s: float | None = None
    unsupported: Refusal | None = None


def write_report(report: Report) -> bytes:
    """The body of a 200."""
    return json.dumps(asdict(report)).encode()


def write_refusal(refusal: Refusal) -> bytes:
    """The body of every other status."""
    return json.dumps(asdict(refusal)).encode()


def write_limits(limits: Limits) -> bytes:
    """The body of a PUT."""
    return json.dumps(asdict(limits)).encode()


def read_limits(body: bytes) -> Limits:
    """A PUT's body: both limits as whole numbers and nothing else. Raises MalformedMessage."""
    value = _object(body)
    names = ("max_num_seqs", "max_num_batched_tokens")
    if set(value) != set(names) or any(type(value[name]) is not int for name in names):
        raise MalformedMessage(f"the body has to be an object of the whole numbers {' and '.join(names)}")
    return Limits(*(value[name] for name in names))


def read_report(body: bytes) -> Report:
    """A 200's body. Raises MalformedMessage, also for another protocol version."""
    value = _object(body)
    if value.get("protocol") != PROTOCOL:
        raise MalformedMessage(f"the plugin speaks protocol {value.get('protocol')!r}, not {PROTOCOL}")
    try:
        envelope, standing, unsupported = value["envelope"], value["standing"], value["unsupported"]
        return Report(
            protocol=PROTOCOL,
            engine_version=str(value["engine_version"]),
            envelope=envelope and _envelope(envelope),
            standing=standing and _standing(standing),
            heartbeat_timeout_s=value["heartbeat_timeout_s"],
            unsupported=unsupported and Refusal(**unsupported),
        )
    except (KeyError, TypeError) as error:
        raise MalformedMessage(f"the plugin's report lacks or has too much: {error}") from None


def read_refusal(body: bytes) -> Refusal:
    """The body of an error. Raises MalformedMessage."""
    value = _object(body)
    if set(value) != {"reason", "message"}:
        raise MalformedMessage("the plugin's error has no reason and message")
    return Refusal(str(value["reason"]), str(value["message"]))


def _object(body: bytes) -> dict:  # type: ignore[type-arg]
    try:
        value = json.loads(body)
    except ValueError as error:
        raise MalformedMessage(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedMessage("the body is no JSON object")
    return value


def _envelope(value: dict) -> Envelope:  # type: ignore[type-arg]
    limits = {name: Limits(**value[name]) for name in ("start", "fall_back_to")}
    return Envelope(**{**value, **limits})


def _standing(value: dict) -> Standing:  # type: ignore[type-arg]
    in_force = value["in_force"]
    return Standing(**{**value, "wanted": Limits(**value["wanted"]), "in_force": in_force and Limits(**in_force)})
