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

    def traceback(self) -> str:
        """Text shaped like the traceback of a real start: the cause is the last line."""
        cause = f"{self.exception}: {self}"
        if self.failed_in is FailedIn.API_SERVER:
            return f"Traceback (most recent call last):\n{cause}\n"
        core = "(EngineCore pid=1) ERROR [core.py] "
        lines = ["EngineCore failed to start.", "Traceback (most recent call last):", *cause.splitlines()]
        failed = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
        return (
            "".join(f"{core}{line}\n" for line in lines)
            + f"(APIServer pid=1) Traceback (most recent call last):\n(APIServer pid=1) RuntimeError: {failed}\n"
        )


def invalid_configuration(config_class: str, message: str) -> EngineStartError:
    """A value that one of vLLM's configuration classes refuses."""
    return EngineStartError(
        FailedIn.API_SERVER,
        "pydantic_core._pydantic_core.ValidationError",
        f"1 validation error for {config_class}\n  Value error, {message}",
    )
