import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.local.command import CommandError, address_of, check_installed, read_command

SETTING = Setting(max_num_seqs=24, max_num_batched_tokens=1024)


@pytest.mark.parametrize(
    ("words", "prefix", "line"),
    [
        (
            ["vllm", "serve", "org/model", "--max-num-seqs", "8"],
            (),
            "vllm serve org/model --max-num-seqs 24 --max-num-batched-tokens=1024",
        ),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"],
            (),
            "python3 -m vllm.entrypoints.openai.api_server --model m --max-num-seqs=24 --max-num-batched-tokens=1024",
        ),
        (
            ["uv", "run", "--with", "vllm", "vllm", "serve", "m"],
            ("uv", "run", "--with", "vllm", "vllm", "serve"),
            "uv run --with vllm vllm serve m --max-num-seqs=24 --max-num-batched-tokens=1024",
        ),
        (
            ["./my server", "fast", "--model=m", "--max_num_seqs=4"],
            ("./my server", "fast"),
            "'./my server' fast --model=m --max_num_seqs=24 --max-num-batched-tokens=1024",
        ),
    ],
)
def test_any_command_that_hands_on_vllms_flags_is_read_and_rewritten(
    words: list[str], prefix: tuple[str, ...], line: str
) -> None:
    command = read_command(words, {})
    assert command.prefix == prefix
    assert command.words(command.container.words) == tuple(words)
    assert command.line_with(SETTING) == line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "No command"),
        (["vllm", "bench"], "vllm serve"),
        (["true"], "not vLLM"),
        (["bash", "serve.sh", "--model", "m"], "the shell"),
        (["./mine", "--max-num-seqs", "8"], "which model"),
        (["vllm", "serve", "m", "--max-num-seqs", "many"], "many"),
        (["vllm", "serve", "m", "--ssl-certfile=/tls/crt", "--ssl-keyfile=/tls/key"], "speaks HTTPS"),
    ],
)
def test_a_command_that_cannot_be_read_is_refused_with_what_is_wrong(words: list[str], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        read_command(words, {})


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("vllm", r"vllm is not on the PATH\. Install it \(pip install vllm\), or give the program's path"),
        ("my-server", r"my-server is not on the PATH\. Install it, or"),
        ("./my-server", r"\./my-server is no program that can be started\. Correct its path"),
    ],
)
def test_a_program_that_is_not_there_is_told_with_the_next_step(program: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=told):
        check_installed([program, "serve", "m"], {"PATH": str(tmp_path)})


def test_a_program_is_found_on_the_path_and_by_its_own_path(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    with pytest.raises(CommandError, match="not on the PATH"):
        check_installed(["vllm"], {"PATH": str(tmp_path)})
    program.chmod(0o755)
    check_installed(["vllm"], {"PATH": str(tmp_path)})
    check_installed([str(program)], {"PATH": ""})


def test_a_key_in_the_environment_is_seen() -> None:
    assert read_command(["vllm", "serve", "m"], {"VLLM_API_KEY": "secret"}).arguments.api_key_required
    assert not read_command(["vllm", "serve", "m"], {"HOME": "/root"}).arguments.api_key_required


@pytest.fixture
def taken() -> Iterator[int]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_port_and_the_host_of_the_flags_are_taken() -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = address_of(read_command(["vllm", "serve", "m", "--host", "0.0.0.0", f"--port={port}"], {}))
    assert (address.host, address.port, address.more_words) == ("127.0.0.1", port, ())


def test_a_port_that_the_user_named_and_that_is_taken_is_told(taken: int) -> None:
    with pytest.raises(CommandError, match=f"Port {taken} is taken"):
        address_of(read_command(["vllm", "serve", "m", "--host", "127.0.0.1", "--port", str(taken)], {}))


def test_where_no_port_is_named_and_the_usual_one_is_taken_a_free_one_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kneekeeper.local.command._is_free", lambda host, port: False)
    address = address_of(read_command(["vllm", "serve", "m"], {}))
    assert address.port != 8000
    assert address.more_words == (f"--port={address.port}",)


def test_a_host_that_is_not_known_is_told() -> None:
    with pytest.raises(CommandError, match="--host"):
        address_of(read_command(["vllm", "serve", "m", "--host", "no-such-host.invalid"], {}))
