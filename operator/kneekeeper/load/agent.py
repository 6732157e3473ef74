"""The load agent: `python -m kneekeeper.load.agent --port 8080`.

    PUT    /stages/{id}          start a stage: 201, or 200 if this very stage was started before
    GET    /stages/{id}          how it stands
    GET    /stages/{id}/samples  its rows, gzipped, once it has ended
    DELETE /stages/{id}          cancel it
    PUT    /helpers              the agents that send beside this one, where a stage is for several
    POST   /shares               send a share of another agent's stage: 101, then frames (`helper`)
    GET    /sources              what the mounted trace and prompts hold, in numbers
    GET    /healthz              alive; needs no token

The bearer token is in the file that KNEEKEEPER_TOKEN_FILE names, the target's API key in the one that
KNEEKEEPER_API_KEY_FILE names, if it has one; a trace and prompts where `sources` says. Nothing is written to disk.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hmac
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

import orjson
from pydantic import BaseModel, ValidationError

from kneekeeper.api.stage import Helpers, Samples, ShareOrder, StageSpec
from kneekeeper.domain.workload import TraceMissing
from kneekeeper.load.http_server import Request, Response, Upgrade, listen
from kneekeeper.load.sources import SourceError, Sources
from kneekeeper.load.stages import StageConflict, Stages, Started, StillRunning, UnknownStage

TOKEN_FILE = "KNEEKEEPER_TOKEN_FILE"
API_KEY_FILE = "KNEEKEEPER_API_KEY_FILE"

_GZIP_LEVEL = 3  # samples shrink to a third in tens of milliseconds; more costs seconds for little
_ROUTES = "the agent has /stages/{id}, /stages/{id}/samples, /sources, /helpers, /shares and /healthz"
_LOG = logging.getLogger("kneekeeper.load.agent")

ENDED = 128 + signal.SIGTERM
"""An agent's work is never complete: with 0, its Job would put no other pod in the place of one that is taken away."""


class AgentConfigError(Exception):
    """The agent cannot start. The message names the variable or file to correct."""


class Agent:
    """Answers requests. `token` guards everything but /healthz."""

    def __init__(self, token: str, stages: Stages) -> None:
        self._token = token.encode()
        self._stages = stages

    async def handle(self, request: Request) -> Response | Upgrade:
        """The answer to a request."""
        parts = request.path.strip("/").split("/")
        if request.path == "/healthz" and request.method == "GET":
            return Response(HTTPStatus.OK, b'{"status":"ok"}')
        if not self._is_allowed(request):
            refused = _message(HTTPStatus.UNAUTHORIZED, "send the run's token as a bearer token")
            return Response(refused.status, refused.body, (("www-authenticate", "Bearer"),))
        try:
            match request.method, parts:
                case "PUT", ["stages", stage_id]:
                    return self._put(stage_id, request.body)
                case "GET", ["stages", stage_id]:
                    return _json(HTTPStatus.OK, self._stages.status(stage_id))
                case "GET", ["stages", stage_id, "samples"]:
                    samples = self._stages.samples(stage_id)
                    body = await asyncio.to_thread(_gzipped, samples)
                    return Response(HTTPStatus.OK, body, (("content-encoding", "gzip"),))
                case "GET", ["sources"]:
                    return _json(HTTPStatus.OK, self._stages.sources.report())
                case "DELETE", ["stages", stage_id]:
                    self._stages.cancel(stage_id)
                    return _json(HTTPStatus.ACCEPTED, self._stages.status(stage_id))
                case "PUT", ["helpers"]:
                    helpers = Helpers.model_validate_json(request.body)
                    self._stages.name_helpers(helpers)
                    return _json(HTTPStatus.OK, helpers)
                case "POST", ["shares"]:
                    return await self._stages.share(ShareOrder.model_validate_json(request.body))
                case _, ["stages", _] | ["stages", _, "samples"]:
                    return _message(HTTPStatus.METHOD_NOT_ALLOWED, "use PUT, GET or DELETE")
        except UnknownStage as error:
            return _message(HTTPStatus.NOT_FOUND, str(error))
        except StageConflict as error:
            body = orjson.dumps({"message": str(error), "running": error.running})
            return Response(HTTPStatus.CONFLICT, body)
        except ValidationError as error:
            return _message(HTTPStatus.UNPROCESSABLE_ENTITY, _explain(error))
        except (SourceError, TraceMissing) as error:
            return _message(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except StillRunning as error:
            return _message(HTTPStatus.CONFLICT, str(error))
        return _message(HTTPStatus.NOT_FOUND, _ROUTES)

    def _put(self, stage_id: str, body: bytes) -> Response:
        spec = StageSpec.model_validate_json(body)
        if spec.id != stage_id:
            return _message(HTTPStatus.UNPROCESSABLE_ENTITY, f"the spec is that of stage {spec.id}; put it there")
        started = self._stages.put(spec)
        status = HTTPStatus.CREATED if started is Started.NOW else HTTPStatus.OK
        return _json(status, self._stages.status(stage_id))

    def _is_allowed(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return hmac.compare_digest(given, self._token) and scheme.lower() == "bearer"


def _json(status: HTTPStatus, model: BaseModel) -> Response:
    return Response(status, model.model_dump_json().encode())


def _message(status: HTTPStatus, message: str) -> Response:
    return Response(status, orjson.dumps({"message": message}))


def _gzipped(samples: Samples) -> bytes:
    return gzip.compress(samples.model_dump_json().encode(), _GZIP_LEVEL, mtime=0)


def _explain(error: ValidationError) -> str:
    """Field and fault of each error, without the values that were sent."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults)


def read_secret(environment: Mapping[str, str], variable: str) -> str | None:
    """The secret in the file that `variable` names; None when it is not set. Raises AgentConfigError."""
    path = environment.get(variable)
    if not path:
        return None
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AgentConfigError(f"{variable}: {path} cannot be read: {error}. Mount the secret there.") from error
    if not secret or not secret.isprintable() or not secret.isascii():
        raise AgentConfigError(f"{variable}: {path} does not hold one line of printable ASCII.")
    return secret


async def run(
    port: int, token: str, api_key: str | None, announce: Callable[[int], None], sources: Sources | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; then cancel what runs. `announce` gets the port. Raises OSError."""
    stages = Stages(api_key, sources, token)
    server = await listen(Agent(token, stages).handle, port)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    announce(server.sockets[0].getsockname()[1])
    await ended.wait()
    server.close()
    await stages.close()


def main() -> int:
    """Run the agent; 2 when it cannot start, `ENDED` when it is told to end."""
    parser = argparse.ArgumentParser(description="kneekeeper's load agent")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        token = read_secret(os.environ, TOKEN_FILE)
        if token is None:
            raise AgentConfigError(f"{TOKEN_FILE} is not set. Let it name the file with the bearer token.")
        api_key = read_secret(os.environ, API_KEY_FILE)
        sources = Sources.from_environment(os.environ)
        asyncio.run(run(arguments.port, token, api_key, lambda port: _LOG.info("serving on port %d", port), sources))
    except (AgentConfigError, OSError) as error:
        _LOG.error("%s", error)
        return 2
    return ENDED


if __name__ == "__main__":
    sys.exit(main())
