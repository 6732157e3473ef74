"""The user's command: which of its words are vLLM's, where it will listen, and how it reads with another setting."""

from __future__ import annotations

import ipaddress
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.arguments import EngineArguments, Refusal, RefusalReason, Scheme, read_engine_arguments
from kneekeeper.domain.arguments.program import entrypoint_of_image
from kneekeeper.domain.observation import ContainerView
from kneekeeper.domain.target import words_with
from kneekeeper.local.wording import for_tune

CONTAINER = "server"
_SERVER_IMAGE = "vllm-openai"
"""As the image whose entry point is vLLM's server: its arguments alone are vLLM's."""

_KEY_VARIABLE = "VLLM_API_KEY"
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class CommandError(Exception):
    """The command cannot be used. The message has the next step."""


@dataclass(frozen=True)
class ServerCommand:
    """A command that takes vLLM's flags. `prefix` is passed on untouched; the container's words follow it."""

    prefix: tuple[str, ...]
    container: ContainerView
    arguments: EngineArguments

    def words(self, container_words: ContainerWords) -> tuple[str, ...]:
        """The whole command with these words."""
        return (*self.prefix, *(container_words.command or ()), *(container_words.args or ()))

    def line_with(self, setting: Setting) -> str:
        """The command line with another setting, for a shell. Raises CommandError where it cannot be rewritten."""
        words = words_with(self.container, setting)
        if isinstance(words, Refusal):
            raise CommandError(for_tune(words.message))
        return shlex.join(self.words(words))


@dataclass(frozen=True)
class Address:
    """Where the server will listen; `more_words` make it listen there."""

    host: str
    port: int
    more_words: tuple[str, ...] = ()


def read_command(words: Sequence[str], environment: Mapping[str, str]) -> ServerCommand:
    """Understand a command: vLLM itself, or any program that hands vLLM's flags on.

    Of an unknown program the words after `serve`, else from the first `--flag` on, are taken for vLLM's. A shell's
    script is refused, since it may not hand them on.
    Raises CommandError.
    """
    if not words:
        raise CommandError("No command. Give the server's own after `--`: kneekeeper tune … -- vllm serve MODEL.")
    known = {name: environment[name] for name in (_KEY_VARIABLE,) if name in environment}
    read = read_engine_arguments(words, None, known)
    prefix: tuple[str, ...] = ()
    image = ""
    unknown = isinstance(read, Refusal) and (read.reason is RefusalReason.NOT_VLLM or read.may_start_vllm)
    if unknown and (split := _split(words)) < len(words):
        prefix, image = tuple(words[:split]), _SERVER_IMAGE
        read = read_engine_arguments(None, words[split:], known, entrypoint=entrypoint_of_image(image))
    if isinstance(read, Refusal):
        raise CommandError(for_tune(read.message))
    if read.scheme is Scheme.HTTPS:
        raise CommandError(
            "The server speaks HTTPS. Leave --ssl-certfile and --ssl-keyfile out while it is tuned here."
        )
    rest = list(words[len(prefix) :])
    try:
        container_words = ContainerWords(args=rest) if prefix else ContainerWords(command=rest)
    except ValidationError as error:
        raise CommandError(f"The command is too long: {error.errors()[0]['msg']}.") from error
    return ServerCommand(prefix, ContainerView(CONTAINER, image, container_words, known, (), 0), read)


def check_installed(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Before anything is started: the command's program is there. Raises CommandError."""
    program = words[0]
    if shutil.which(program, path=environment.get("PATH")) is not None:
        return
    if "/" in program:
        raise CommandError(f"{program} is no program that can be started. Correct its path.")
    install = " Install it (pip install vllm)," if program == "vllm" else " Install it,"
    raise CommandError(f"{program} is not on the PATH.{install} or give the program's path after `--`.")


def _split(words: Sequence[str]) -> int:
    if "serve" in words[1:]:
        return words.index("serve", 1) + 1
    return next((at for at, word in enumerate(words) if at > 0 and word.startswith("--")), len(words))


def address_of(command: ServerCommand) -> Address:
    """The host and port that its flags name. Where they name no port and 8000 is taken, a free one is chosen.

    Raises CommandError when the port is taken, or the host is not one of this machine.
    """
    named = command.arguments.host or ""
    host = _ANY_ADDRESS.get(named) or _resolve(named)
    port = command.arguments.port
    if _is_free(host, port):
        return Address(host, port)
    if any(word == "--port" or word.startswith("--port=") for word in command.words(command.container.words)):
        raise CommandError(f"Port {port} is taken. Stop what listens there, or give --port another number.")
    free = _free_port(host)
    return Address(host, free, (f"--port={free}",))


def _resolve(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CommandError(f"--host {host} is not known here: {error}. Use --host 127.0.0.1.") from error
    return str(found[0][4][0])


def _is_free(host: str, port: int) -> bool:
    try:
        with _socket(host) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        return False
    return True


def _free_port(host: str) -> int:
    try:
        with _socket(host) as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        raise CommandError(f"This machine has no address {host}: {error}. Use --host 127.0.0.1.") from error


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
