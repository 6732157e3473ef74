"""One stage over several agents: who sends which of its requests.

Every agent draws the whole stage from its seed, and sends each `agents`-th of its requests: so what is offered together
is the stage as one agent would send it, and neither prompts nor keys travel between agents. A closed loop's users are
parted the same way, and each goes on with the requests of its own agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import StageSpec
from kneekeeper.domain.workload import Workload
from kneekeeper.load.frames import Loop, Plan, Scheme


@dataclass(frozen=True)
class Share:
    """The requests of the `part`-th of `agents` agents, counted from 0."""

    part: int
    agents: int

    def has(self, index: int) -> bool:
        """Whether the stage's request `index` is this agent's."""
        return index % self.agents == self.part

    def of(self, count: int) -> int:
        """How many of the first `count` requests are this agent's."""
        return len(range(self.part, count, self.agents))


ALL = Share(0, 1)


def plan_of(spec: StageSpec, workload: Workload, share: Share) -> Plan:
    """What the worker that sends a share needs to know."""
    arrivals, tls = spec.arrivals, spec.target.tls
    closed = isinstance(arrivals, Closed)
    users = share.of(workload.intended_s.size) if closed else 0
    return Plan(
        loop=Loop.CLOSED if closed else Loop.OPEN,
        users=users,
        rate=_thinking_rate(arrivals, users) if isinstance(arrivals, Closed) else workload.mean_rate / share.agents,
        orders=share.of(len(workload)),
        request_timeout_s=spec.limits.request_timeout_s,
        port=spec.target.port,
        host=spec.target.host,
        scheme=Scheme.HTTP if tls is None else Scheme.HTTPS,
        server_name="" if tls is None else tls.server_name,
        ca_file="" if tls is None else tls.ca_file,
    )


def _thinking_rate(arrivals: Closed, users: int) -> float:
    """The most requests per second of users who think; 0 where they do not: they have a connection each."""
    return users / arrivals.think_time_s if arrivals.think_time_s > 0 else 0.0
