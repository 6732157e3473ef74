from __future__ import annotations

import math

import orjson
import pytest

from kneekeeper.api.offered_load import Closed, Open, Uniform
from kneekeeper.api.stage import Endpoint, Limits, Target
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.rendering import Renderer
from tests.unit.test_load_evidence import spec

FEW = Limits(min_requests=1, max_requests=20, max_duration_s=1)


def rendered(api_key: str | None = None, **target: object) -> list[tuple[list[str], dict[str, object]]]:
    stage = spec(
        target=Target.model_validate({"host": "10.0.0.1", "port": 80, "model": "m"} | target),
        prompt_tokens=Uniform(low=1, high=40),
        limits=FEW,
    )
    orders = Renderer(stage, draw_workload(stage), api_key).orders()
    requests = []
    for order in orders:
        head, _, body = order.request.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert f"content-length: {len(body)}" in lines
        requests.append((lines, orjson.loads(body)))
    return requests


@pytest.mark.parametrize(
    ("target", "line", "host"),
    [
        ({}, "POST /v1/completions HTTP/1.1", "host: 10.0.0.1:80"),
        ({"root_path": "/llm/"}, "POST /llm/v1/completions HTTP/1.1", "host: 10.0.0.1:80"),
        ({"endpoint": Endpoint.CHAT}, "POST /v1/chat/completions HTTP/1.1", "host: 10.0.0.1:80"),
        ({"host": "fd00::7"}, "POST /v1/completions HTTP/1.1", "host: [fd00::7]:80"),
        ({"tls": {"server_name": "llm.svc"}}, "POST /v1/completions HTTP/1.1", "host: llm.svc:80"),
        ({"tls": {}}, "POST /v1/completions HTTP/1.1", "host: 10.0.0.1:80"),
    ],
)
def test_requests_go_to_the_target(target, line, host):
    for lines, _ in rendered(**target):
        assert lines[0] == line
        assert host in lines


def test_the_api_key_is_a_header_when_there_is_one():
    assert all("authorization: Bearer k" in lines for lines, _ in rendered("k"))
    assert not any("authorization" in line for lines, _ in rendered() for line in lines)


def test_prompts_are_distinct_lists_of_token_ids_within_the_range():
    bodies = [body for _, body in rendered(token_id_low=1000, token_id_high=100_000)]
    prompts = [body["prompt"] for body in bodies]
    assert all(isinstance(prompt, list) and all(1000 <= token <= 100_000 for token in prompt) for prompt in prompts)
    assert len({tuple(prompt) for prompt in prompts if isinstance(prompt, list)}) == 20


def test_an_open_loops_orders_all_have_times_and_a_closed_loops_only_the_first():
    opened = spec(arrivals=Open(rate=5), limits=FEW)
    times = [order.intended_s for order in Renderer(opened, draw_workload(opened), None).orders()]
    assert times == draw_workload(opened).intended_s.tolist()
    closed = spec(arrivals=Closed(users=3), limits=FEW)
    times = [order.intended_s for order in Renderer(closed, draw_workload(closed), None).orders()]
    assert [math.isnan(time) for time in times] == [False] * 3 + [True] * 17
