"""`python -m kneekeeper.engine serve MODEL …` or `python -m kneekeeper.engine --model MODEL …`."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence

import uvloop

from kneekeeper.engine import VLLM_VERSION
from kneekeeper.engine.arguments import ArgumentsError, parse_arguments
from kneekeeper.engine.configuration import configure
from kneekeeper.engine.hardware import ENVIRONMENT_VARIABLE, HardwareError, read_hardware
from kneekeeper.engine.server import ExitCode, run_server
from kneekeeper.engine.start_error import EngineStartError, check_port_variable

_LOG = logging.getLogger("kneekeeper.engine")
_TIME_FORMAT = "%m-%d %H:%M:%S"
_SECRET_ARGUMENTS = frozenset(("api_key", "hf_token"))


def main(command_line: Sequence[str]) -> ExitCode:
    """Run one server to its end. Raises SystemExit with code 2 where vLLM's argparse does."""
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format=f"(APIServer pid={os.getpid()}) %(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s",
        datefmt=_TIME_FORMAT,
    )
    try:
        hardware = read_hardware(os.environ.get(ENVIRONMENT_VARIABLE))
        arguments = parse_arguments(command_line)
    except (HardwareError, ArgumentsError) as error:
        sys.stderr.write(f"ValueError: {error}\n")
        return ExitCode.FAILED
    shown = {name: "***" if name in _SECRET_ARGUMENTS else value for name, value in arguments.non_default.items()}
    _LOG.info("vLLM API server version %s (simulated by kneekeeper)", VLLM_VERSION)
    _LOG.info("non-default args: %s", shown)
    try:
        check_port_variable(os.environ.get("VLLM_PORT"))
        return uvloop.run(run_server(configure(arguments, hardware), hardware))
    except EngineStartError as error:
        sys.stdout.flush()
        sys.stderr.write(error.traceback(time.strftime(_TIME_FORMAT)))
        return ExitCode.FAILED
    except OSError as error:
        sys.stderr.write(f"OSError: {error}\n")
        return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
