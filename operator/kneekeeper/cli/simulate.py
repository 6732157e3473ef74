"""`kneekeeper simulate`: what would happen, from the model that was fitted to a run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kneekeeper.cli.argument_types import batched_tokens, between, duration, positive, sequences, whole
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands
from kneekeeper.cli.run_source import add_run_options, find_run

if TYPE_CHECKING:
    from kneekeeper.api.model import Setting
    from kneekeeper.cli.run_source import MeasuredRun
    from kneekeeper.domain.views.simulation import Scenario

_MOST_REPLICAS = 10_000

_DESCRIPTION = """\
Ask the twin, a simulation of the engine that was fitted to a measured run: which P99s come out with other targets,
other traffic, other limits or other numbers of replicas, how much they carry, and what that costs. What is left out is
as in the run; without --rate it tells the highest rate that holds. Nothing is measured and nothing is changed."""

_EPILOG = """\
exit codes:
  0    the targets are predicted to hold
  1    they are not
  2    wrong usage, no model, or the cluster cannot be read; the message has the next step
  130  after Ctrl-C

examples:
  kneekeeper simulate chat -n prod --tpot 30ms
  kneekeeper simulate chat -n prod --rate 120 --replicas 8 --imbalance 15 --gpu-hour-price 2.50
  kneekeeper simulate --run-file run.yaml --max-num-seqs 64 --max-num-batched-tokens 2048 --rate 12
  kneekeeper simulate --run-file run.yaml --workload chat.yaml --search"""


def add_to(commands: Commands) -> None:
    """`kneekeeper simulate`."""
    parser = commands.add_parser(
        "simulate",
        help="predict P99s, capacity and cost for other targets, traffic, limits or replicas",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    for limit, kind in (("--max-num-seqs", sequences), ("--max-num-batched-tokens", batched_tokens)):
        parser.add_argument(limit, type=kind, metavar="N", help="(default: what the run chose)")
    parser.add_argument(
        "--search", action="store_true", help="look for the best limits among those that the run covered"
    )
    parser.add_argument("--rate", type=positive("12 or 0.5"), metavar="R", help="requests/s of all replicas together")
    parser.add_argument("--replicas", type=whole("4", _MOST_REPLICAS), default=1, metavar="N", help="(default: 1)")
    parser.add_argument(
        "--imbalance",
        type=between(0, 1000, "15"),
        metavar="PERCENT",
        help="how much more than its part the busiest replica gets (default: what the operator saw of the profile, "
        "else 0)",
    )
    parser.add_argument("--ttft", type=duration, metavar="TIME", help="another target: P99 TTFT, such as 500ms")
    parser.add_argument("--tpot", type=duration, metavar="TIME", help="another target: P99 TPOT, such as 40ms")
    parser.add_argument("--e2e", type=duration, metavar="TIME", help="another target: P99 of the whole answer")
    parser.add_argument(
        "--workload", type=Path, metavar="FILE.yaml", help="other traffic: the workload section of a ServingProfile"
    )
    parser.add_argument("--gpu-hour-price", type=positive("2.50"), metavar="PRICE", help="tell the cost too")
    add_output_option(parser)
    add_run_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.output import print_as, print_lines, working
    from kneekeeper.cli.show.simulation import simulation_lines
    from kneekeeper.domain.views.simulation import best_setting, simulation
    from kneekeeper.domain.views.twin import NoModelError

    found = find_run(arguments)
    scenario = _scenario(arguments, found)
    try:
        with working("The twin works"):
            if arguments.search:
                scenario = replace(scenario, setting=best_setting(found.run, scenario))
            answer = simulation(found.run, scenario)
    except NoModelError as error:
        raise CannotError(f"{found.run.metadata['name']}: {error}") from error
    print_as(Output(arguments.output), answer, lambda _: print_lines(simulation_lines(answer)))
    return ExitCode.DONE if answer.holds else ExitCode.NO


def _scenario(arguments: argparse.Namespace, found: MeasuredRun) -> Scenario:
    """Raises CannotError."""
    from kneekeeper.api.stage import Slo
    from kneekeeper.cli.fields import workload_of
    from kneekeeper.domain.views.simulation import Scenario
    from kneekeeper.local.defaults import TRAFFIC

    if arguments.search and (arguments.max_num_seqs or arguments.max_num_batched_tokens):
        raise CannotError("--search looks for the limits; leave --max-num-seqs and --max-num-batched-tokens out")
    workload = workload_of(arguments.workload, TRAFFIC) if arguments.workload is not None else None
    if arguments.imbalance is not None:
        imbalance = arguments.imbalance / 100
    else:
        scale = found.profile.status.scale if found.profile is not None else None
        imbalance = scale.imbalance_percent / 100 - 1 if scale is not None and arguments.replicas > 1 else 0.0
    return Scenario(
        setting=_setting(arguments, found),
        requests_per_second=arguments.rate,
        replicas=arguments.replicas,
        imbalance=imbalance,
        slo=Slo(ttft_s=arguments.ttft, tpot_s=arguments.tpot, e2e_s=arguments.e2e),
        workload=workload,
        price_per_gpu_hour=arguments.gpu_hour_price,
    )


def _setting(arguments: argparse.Namespace, found: MeasuredRun) -> Setting | None:
    """What was asked for; of a single limit the other is the run's. Raises CannotError."""
    from kneekeeper.api.model import Setting

    seqs, tokens = arguments.max_num_seqs, arguments.max_num_batched_tokens
    if seqs is None and tokens is None:
        return None
    status = found.run.status
    own = [status.plan.present] if status.plan is not None else []
    own += [choice.setting for choice in status.choices]
    if not own and None in (seqs, tokens):
        raise CannotError("the run says nothing of limits yet; give both --max-num-seqs and --max-num-batched-tokens")
    return Setting(
        max_num_seqs=seqs if seqs is not None else own[-1].max_num_seqs,
        max_num_batched_tokens=tokens if tokens is not None else own[-1].max_num_batched_tokens,
    )
