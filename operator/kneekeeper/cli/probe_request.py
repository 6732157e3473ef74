"""What `kneekeeper probe` is asked to offer, and to which server."""

from __future__ import annotations

import argparse
import secrets

from pydantic import ValidationError

from kneekeeper.api.offered_load import Arrivals, Closed, Open
from kneekeeper.api.serving_profile import ServingProfileSpec, TargetRef
from kneekeeper.api.stage import Endpoint, PromptSource, Slo
from kneekeeper.api.workload import SloTargets
from kneekeeper.cli.argument_types import MOST_USERS, duration
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.fields import explain, pairs, with_files, workload_of
from kneekeeper.cli.servers import check_address, check_certificates
from kneekeeper.domain.ladder import ALIKE, RequestKinds
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.requests import traffic_of
from kneekeeper.local.defaults import TRAFFIC
from kneekeeper.local.probing import ProbeRequest
from kneekeeper.local.wording import for_probe


def request_of(arguments: argparse.Namespace) -> ProbeRequest:
    """What to offer. Raises CannotError."""
    check_address(arguments.url)
    check_certificates(arguments.ca_file)
    try:
        profile = ServingProfileSpec(
            target_ref=TargetRef(kind="Deployment", name="probe"),
            slo=SloTargets(p99_ttft=1.0),
            workload=with_files(workload_of(arguments.workload, TRAFFIC), None, arguments.prompts),
        )
        problem = spec_problem(profile)
        if problem is not None:
            raise CannotError(for_probe(problem.message))
        traffic = traffic_of(profile, None)
        if traffic.kinds not in (ALIKE, RequestKinds(prompts=PromptSource.MOUNTED)):
            raise CannotError("--workload: a probe sends one kind of requests: leave out classes and shared prefixes")
        return ProbeRequest(
            url=arguments.url.rstrip("/").removesuffix("/v1"),
            model=arguments.model,
            endpoint=Endpoint.CHAT if arguments.chat else Endpoint.COMPLETIONS,
            levels=_levels(arguments, traffic.burstiness),
            profile=profile,
            prompts=arguments.prompts,
            ca_file=None if arguments.ca_file is None else arguments.ca_file.resolve(),
            slo=_slo(arguments.slo),
            max_requests=arguments.requests,
            max_duration_s=arguments.duration,
            seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        )
    except ValidationError as error:
        raise CannotError(explain(error)) from error


def _levels(arguments: argparse.Namespace, burstiness: float | None) -> tuple[Arrivals, ...]:
    if arguments.rate is not None:
        return (Open(rate=arguments.rate, burstiness=burstiness),)
    if arguments.users is not None:
        return (Closed(users=arguments.users),)
    low, dots, high = (arguments.ladder or "1..64").partition("..")
    if not (dots and low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high) <= MOST_USERS):
        raise CannotError(f"--ladder: {arguments.ladder!r} is no range of 1 to {MOST_USERS} users; write it like 1..64")
    users, levels = int(low), []
    while users < int(high):
        levels.append(users)
        users *= 2
    return tuple(Closed(users=level) for level in (*levels, int(high)))


def _slo(text: str | None) -> Slo:
    targets: dict[str, float] = {}
    for name, value in pairs("--slo", text or "").items():
        if name not in ("ttft", "tpot", "e2e"):
            raise CannotError(f"--slo: there is no {name!r}; write ttft=500ms,tpot=40ms,e2e=30s")
        try:
            targets[f"{name}_s"] = duration(value)
        except argparse.ArgumentTypeError as error:
            raise CannotError(f"--slo {name}: {error}") from error
    if text is not None and not targets:
        raise CannotError("--slo: name a target, such as ttft=500ms")
    return Slo(**targets)
