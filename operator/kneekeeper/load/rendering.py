"""The bytes of each request, ready to be sent."""

from __future__ import annotations

import math
from collections.abc import Iterator

import orjson

from kneekeeper.api.stage import Endpoint, StageSpec, Target
from kneekeeper.domain.workload import Ints, Workload, draw_prompt
from kneekeeper.load.frames import Order

_LETTERS = 26


def host_header(target: Target) -> str:
    """Address and port as HTTP and URLs write them: IPv6 in brackets."""
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"


class Renderer:
    """Renders the requests of one stage. The API key goes into the header and nowhere else."""

    def __init__(self, spec: StageSpec, workload: Workload, api_key: str | None) -> None:
        self._spec, self._workload = spec, workload
        target = spec.target
        key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = (
            f"POST {target.root_path.rstrip('/')}{target.endpoint} HTTP/1.1\r\n"
            f"host: {host_header(target)}\r\n"
            f"{key}accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: "
        ).encode()

    def render(self, index: int) -> bytes:
        """Head and body of request `index`, of exactly the drawn lengths.

        A chat takes text only, so its prompt is one letter for each token: about that many tokens, and what
        the chat template adds. The rows carry the server's own count.
        """
        target = self._spec.target
        prompt_tokens = int(self._workload.prompt_tokens[index])
        output_tokens = int(self._workload.output_tokens[index])
        ids = draw_prompt(self._spec.seed, index, prompt_tokens, target.token_id_low, target.token_id_high)
        prompt = (
            {"prompt": ids}
            if target.endpoint is Endpoint.COMPLETIONS
            else {"messages": [{"role": "user", "content": _letters(ids)}]}
        )
        body = orjson.dumps(
            {
                "model": target.model,
                **prompt,
                "max_tokens": output_tokens,
                "min_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )
        return b"%s%d\r\n\r\n%s" % (self._head, len(body), body)

    def orders(self) -> Iterator[Order]:
        """All requests in the order in which they are sent, rendered one by one."""
        times = self._workload.intended_s
        for index in range(len(self._workload)):
            yield Order(index, float(times[index]) if index < times.size else math.nan, self.render(index))


def _letters(ids: Ints) -> str:
    return " ".join(chr(ord("a") + token % _LETTERS) for token in ids.tolist())
