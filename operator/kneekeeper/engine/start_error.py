"""Why a start failed, in vLLM's words, for what reads logs."""

from __future__ import annotations

from enum import StrEnum


class FailedIn(StrEnum):
    """The process of vLLM that fails."""

    API_SERVER = "APIServer"
    """Before the engine core exists: arguments and configuration."""

    ENGINE_CORE = "EngineCore"
    """In the engine core: memory. The API server then fails in its turn."""


class EngineStartError(Exception):
    """The engine cannot start with these arguments on this hardware.

    `exception` is the type that the real server's traceback ends with; the message is what follows it.
    """

    def __init__(self, failed_in: FailedIn, exception: str, message: str) -> None:
        super().__init__(message)
        self.failed_in = failed_in
        self.exception = exception

    def traceback(self, timestamp: str) -> str:
        """Text shaped like what a real failing start writes, without the stack's frames.

        `timestamp` stands in the lines of the engine core's log.
        """
        cause = f"{self.exception}: {self}"
        if self.failed_in is FailedIn.API_SERVER:
            return f"(APIServer pid=1) Traceback (most recent call last):\n{cause}\n"
        prefix = f"(EngineCore pid=2) ERROR {timestamp} [core.py:1510] "
        lines = ["EngineCore failed to start.", "Traceback (most recent call last):", *cause.splitlines()]
        return (
            "".join(f"{prefix}{line}\n" for line in lines)
            + f"Process EngineCore:\nTraceback (most recent call last):\n{cause}\n"
            + "(APIServer pid=1) Traceback (most recent call last):\n"
            + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
        )


def invalid_configuration(config_class: str, message: str) -> EngineStartError:
    """A value that one of vLLM's configuration classes refuses."""
    return EngineStartError(
        FailedIn.API_SERVER,
        "pydantic_core._pydantic_core.ValidationError",
        f"1 validation error for {config_class}\n  Value error, {message} "
        "[type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
    )


def check_port_variable(vllm_port: str | None) -> None:
    """A Service named `vllm` gives every pod beside it a VLLM_PORT that vLLM takes for its own variable.

    Raises EngineStartError when the variable's value is such an address.
    """
    if vllm_port is None or "://" not in vllm_port:
        return
    raise EngineStartError(
        FailedIn.ENGINE_CORE,
        "ValueError",
        f"VLLM_PORT '{vllm_port}' appears to be a URI. This may be caused by a Kubernetes service discovery issue,"
        "check the warning in: https://docs.vllm.ai/en/latest/configuration/env_vars.html",
    )
