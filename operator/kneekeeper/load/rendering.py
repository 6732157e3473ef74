"""The bytes of each request, ready to be sent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import orjson

from kneekeeper.api.stage import Endpoint, StageSpec, Target
from kneekeeper.domain.prompts import Prompt
from kneekeeper.domain.workload import Ints, Workload, draw_prompt
from kneekeeper.load.frames import Order
from kneekeeper.load.shares import ALL, Share

_LETTERS = 26


def host_header(target: Target) -> str:
    """Name, or else address, and port as HTTP and URLs write them: IPv6 in brackets."""
    if target.tls is not None and target.tls.server_name:
        return f"{target.tls.server_name}:{target.port}"
    return authority(target)


def authority(target: Target) -> str:
    """Address and port as URLs write them: IPv6 in brackets."""
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"


class Renderer:
    """Renders the requests of one stage. The API key goes into the header and nowhere else."""

    def __init__(
        self,
        spec: StageSpec,
        workload: Workload,
        api_key: str | None,
        prompts: Iterator[tuple[int, Prompt]] | None = None,
    ) -> None:
        """`prompts` are real ones with the number of their round; left out, prompts are drawn."""
        self._spec, self._workload, self._prompts = spec, workload, prompts
        self._key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._heads = {endpoint: self._head(endpoint) for endpoint in Endpoint}

    def _head(self, endpoint: Endpoint) -> bytes:
        target = self._spec.target
        return (
            f"POST {target.root_path.rstrip('/')}{endpoint} HTTP/1.1\r\n"
            f"host: {host_header(target)}\r\n"
            f"{self._key}accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: "
        ).encode()

    def render(self, index: int) -> bytes:
        """Head and body of request `index`, of exactly the drawn lengths; a real prompt has its own.

        A chat takes text only, so its drawn prompt is one letter for each token: about that many tokens, and
        what the chat template adds. The rows carry the server's own count. The salt keeps the engine's prefix
        cache from serving a real prompt that it had in an earlier round or stage: what prompts of one round
        share, they share.
        """
        output_tokens = int(self._workload.output_tokens[index])
        endpoint = self._spec.target.endpoint
        if self._prompts is not None:
            turn, real = next(self._prompts)
            endpoint, fields = real.endpoint, real.field | {"cache_salt": f"{self._spec.seed:x}-{turn}"}
        else:
            fields = self._drawn_prompt(index)
        body = orjson.dumps(
            {
                "model": self._spec.target.model,
                **fields,
                "max_tokens": output_tokens,
                "min_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                # Counts in every chunk tell how many tokens the first one brought; other servers ignore the wish.
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )
        return b"%s%d\r\n\r\n%s" % (self._heads[endpoint], len(body), body)

    def _drawn_prompt(self, index: int) -> dict[str, Any]:
        target, sharing = self._spec.target, self._spec.prefix
        shared = 0 if sharing is None else sharing.block_tokens * int(self._workload.shared_blocks[index])
        tokens = int(self._workload.prompt_tokens[index])
        ids = draw_prompt(self._spec.seed, index, tokens, target.token_id_low, target.token_id_high, shared)
        if target.endpoint is Endpoint.COMPLETIONS:
            return {"prompt": ids}
        return {"messages": [{"role": "user", "content": _letters(ids)}]}

    def orders(self, share: Share = ALL) -> Iterator[Order]:
        """The requests of a share in the order in which they are sent, rendered one by one."""
        times, think_s = self._workload.intended_s, self._workload.think_s
        for index in range(len(self._workload)):
            if not share.has(index):
                if self._prompts is not None:
                    next(self._prompts)  # that of another agent
                continue
            at_s = float(times[index]) if index < times.size else math.nan
            yield Order(index, at_s, self.render(index), float(think_s[index]) if think_s.size else 0.0)


def _letters(ids: Ints) -> str:
    return " ".join(chr(ord("a") + token % _LETTERS) for token in ids.tolist())
