"""A client that waits for an API server which is too busy: for what is prepared or played, and not what is tested."""

from __future__ import annotations

import asyncio

from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.errors import Conflict, ServerTrouble
from kneekeeper.kube.resources import Resource

_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)


class PatientKube(Kube):
    """`Kube`, whose calls are tried again for some two minutes; one that was carried out and not answered counts."""

    async def _object(self, call: Call) -> Resource:
        try:
            return await super()._object(call)
        except ServerTrouble as error:
            trouble = error
        for pause_s in _PAUSES_S:
            await asyncio.sleep(max(pause_s, trouble.retry_after_s))
            try:
                return await super()._object(call)
            except ServerTrouble as error:
                trouble = error
            except Conflict:
                path = call.path.removesuffix("/status")
                if call.method == "POST" and isinstance(call.body, dict):
                    path = f"{path}/{call.body['metadata']['name']}"
                return await super()._object(Call("GET", path))
        raise trouble
