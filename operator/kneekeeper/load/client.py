"""How the operator talks to a load agent."""

from __future__ import annotations

from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import Helpers, Samples, StageSpec, StageStatus
from kneekeeper.load.pod_client import PodClient

_Model = TypeVar("_Model", bound=BaseModel)


class AgentError(Exception):
    """Talking to the load agent failed."""


class AgentUnreachable(AgentError):
    """No answer, or one that no agent gives: it starts, has died, or a network policy is in the way. Try again."""


class AgentRefused(AgentError):
    """The agent says no, and says why. The same request will be refused again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the load agent refused ({status}): {message}")
        self.status = status
        self.message = message


class StageUnknown(AgentRefused):
    """The agent does not know the stage: it was never started, or the agent has died since. Start it."""


class AnotherStageRuns(AgentRefused):
    """The agent works on the stage `running`. Delete it, or wait for its end."""

    def __init__(self, status: int, message: str, running: str) -> None:
        super().__init__(status, message)
        self.running = running


class AgentClient(PodClient):
    """One agent at `base_url` (`http://10.0.0.7:8080`). All methods raise AgentUnreachable and AgentRefused."""

    async def put_stage(self, spec: StageSpec) -> StageStatus:
        """Start a stage; ordering the same one again changes nothing. Raises AnotherStageRuns."""
        return await self._ask("PUT", f"/stages/{spec.id}", StageStatus, spec.model_dump_json())

    async def put_helpers(self, helpers: Helpers) -> None:
        """Name the agents that send beside this one, where a stage is for several."""
        await self._ask("PUT", "/helpers", Helpers, helpers.model_dump_json())

    async def get_stage(self, stage_id: str) -> StageStatus:
        """How a stage stands. Raises StageUnknown."""
        return await self._ask("GET", f"/stages/{stage_id}", StageStatus)

    async def get_samples(self, stage_id: str) -> Samples:
        """The rows of an ended stage; of one that runs they are refused. Raises StageUnknown."""
        return await self._ask("GET", f"/stages/{stage_id}/samples", Samples)

    async def get_sources(self) -> SourcesReport:
        """What the mounted trace and prompts hold; the first call starts reading them."""
        return await self._ask("GET", "/sources", SourcesReport)

    async def delete_stage(self, stage_id: str) -> StageStatus:
        """Cancel a stage. Raises StageUnknown."""
        return await self._ask("DELETE", f"/stages/{stage_id}", StageStatus)

    async def _ask(self, method: str, path: str, answer: type[_Model], body: str | None = None) -> _Model:
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            response = await self._client.request(method, path, content=body, headers=headers)
            content = response.content
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise AgentUnreachable(f"the load agent at {self._client.base_url} does not answer: {reason}") from error
        if response.is_success:
            try:
                return answer.model_validate_json(content)
            except ValidationError as error:
                raise AgentUnreachable(f"{self._client.base_url} gives answers that no load agent gives") from error
        message = _told(response, "message") or response.reason_phrase
        if response.is_server_error:
            raise AgentUnreachable(f"the load agent at {self._client.base_url} failed: {message}")
        running = _told(response, "running")
        if running is not None:
            raise AnotherStageRuns(response.status_code, message, running)
        kind = StageUnknown if response.status_code == httpx.codes.NOT_FOUND else AgentRefused
        raise kind(response.status_code, message)


def _told(response: httpx.Response, field: str) -> str | None:
    try:
        told = response.json()[field]
    except (ValueError, KeyError, TypeError):
        return None
    return None if told is None else str(told)
