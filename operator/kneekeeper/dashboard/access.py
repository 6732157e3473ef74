"""Retune, suspend and approve, for viewers whom the cluster allows it. Off unless the server is told.

The server's own account only reads. A viewer sends a bearer token of the cluster with each action: TokenReview tells
who it is, SubjectAccessReview whether they may patch the profile, and the patch is then written with that token, so
that the API server's own authorization and audit see the viewer and nobody else.

No cookie is ever set, and the token lives in the page's memory alone, so a foreign site has nothing to ride on.
Requests that a browser marks as cross-site are refused all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kneekeeper.api.model import GROUP
from kneekeeper.dashboard.answers import json_response, problem
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.user_actions import RESUME, SUSPEND, approving, retuning
from kneekeeper.domain.views.key import Key
from kneekeeper.kube.client import JsonPatch, Kube
from kneekeeper.kube.errors import Forbidden, Invalid, KubeError, NotFound
from kneekeeper.kube.resources import SERVING_PROFILES, Kind

log = logging.getLogger(__name__)

TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)

LONGEST_TOKEN = 8192


class Verb(StrEnum):
    """What a viewer may ask for."""

    RETUNE = "retune"
    SUSPEND = "suspend"
    RESUME = "resume"
    APPROVE = "approve"


class ActionRequest(BaseModel):
    """The body of an action. `hash` names the recommendation that is approved: the one that the viewer saw."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verb: Verb
    hash: str = Field(default="", max_length=64)


@dataclass(frozen=True)
class Done:
    """Who did what."""

    verb: str
    user: str


class RefusedError(Exception):
    """The action is not allowed, or makes no sense now. The message has the next step."""

    def __init__(self, http_status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status


AsViewer = Callable[[str], AbstractAsyncContextManager[Kube]]
"""A client that speaks with the given bearer token."""


class Actions:
    """Carries out actions: asks who the viewer is with the server's own account, writes with the viewer's."""

    def __init__(self, own: Kube, as_viewer: AsViewer, store: Store, clock: Callable[[], datetime]) -> None:
        self._own, self._as_viewer, self._store, self._clock = own, as_viewer, store, clock

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """POST …/actions."""
        key = Key(request.match_info["namespace"], request.match_info["name"])
        try:
            check_origin(request)
            token = bearer_token(request.headers.get("Authorization", ""))
            asked = ActionRequest.model_validate_json(await request.read())
            user = await self.allowed_user(token, key)
            patch = self.patch(key, asked)
            async with self._as_viewer(token) as kube:
                await kube.json_patch(SERVING_PROFILES, key.namespace, key.name, patch)
        except ValidationError as error:
            return problem(400, f"The action cannot be read: {error.errors()[0]['msg']}.")
        except RefusedError as refused:
            return problem(refused.http_status, str(refused))
        except Forbidden:
            return problem(403, f"The API server does not let you patch servingprofiles in {key.namespace}.")
        except NotFound:
            return problem(404, f"There is no ServingProfile {key.name} in {key.namespace} (any more).")
        except Invalid as error:
            return problem(409, f"The profile changed meanwhile: {error}. Look again, then repeat it.")
        except KubeError as error:
            return problem(502, f"The API server did not answer: {error}")
        log.info("%s of %s/%s by %s", asked.verb, key.namespace, key.name, user)
        return json_response(Done(asked.verb.value, user))

    async def allowed_user(self, token: str, key: Key) -> str:
        """Who the token is of, if they may patch this profile. Raises RefusedError, KubeError."""
        review = await self._own.create(
            TOKEN_REVIEWS,
            "",
            {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}},
        )
        status: dict[str, Any] = review.get("status") or {}
        if not status.get("authenticated"):
            raise RefusedError(401, "The cluster does not know this token. Get one with kubectl create token NAME.")
        user: dict[str, Any] = status.get("user") or {}
        asked = {"namespace": key.namespace, "name": key.name, "verb": "patch"}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
            "resourceAttributes": {"group": GROUP, "resource": SERVING_PROFILES.plural, **asked},
        }
        body = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        access = await self._own.create(ACCESS_REVIEWS, "", body)
        if not (access.get("status") or {}).get("allowed"):
            raise RefusedError(
                403,
                f"{spec['user']} may not patch servingprofiles/{key.name} in {key.namespace}. "
                "Bind a role that allows it.",
            )
        return str(spec["user"])

    def patch(self, key: Key, asked: ActionRequest) -> JsonPatch:
        """What is written for an action. Raises RefusedError where it makes no sense."""
        profile = self._store.profile(key)
        if profile is None:
            raise RefusedError(404, f"There is no ServingProfile {key.name} in {key.namespace} (any more).")
        if asked.verb in (Verb.SUSPEND, Verb.RESUME):
            return SUSPEND if asked.verb is Verb.SUSPEND else RESUME
        if asked.verb is Verb.RETUNE:
            return retuning(profile.metadata, self._clock())
        recommendation = profile.status.recommendation
        if recommendation is None or recommendation.hash != asked.hash:
            raise RefusedError(409, "The recommendation changed since you saw it. Look again, then approve that one.")
        if not recommendation.is_certified:
            raise RefusedError(409, "It is predicted and not proven, so it is never written. Run its patch yourself.")
        return approving(profile.metadata, asked.hash)


def check_origin(request: web.Request) -> None:
    """Refuse what a browser sent from another site. Raises RefusedError."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if site not in ("same-origin", "none"):
        raise RefusedError(403, "Actions are taken from the dashboard's own page alone.")
    origin = request.headers.get("Origin")
    if origin is not None and origin.split("://", 1)[-1] != request.host:
        raise RefusedError(403, "Actions are taken from the dashboard's own page alone.")
    if request.content_type != "application/json":
        raise RefusedError(415, "Send the action as application/json.")


def bearer_token(header: str) -> str:
    """The token of an Authorization header. Raises RefusedError."""
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN or not token.isascii():
        raise RefusedError(401, "Actions need a bearer token of the cluster. Get one with kubectl create token NAME.")
    return token
