"""Which words start vLLM: every plain form is found, anything else is refused."""

from __future__ import annotations

import pytest

from kneekeeper.domain.arguments import (
    EngineArguments,
    ImageEntrypoint,
    Refusal,
    RefusalReason,
    entrypoint_of_image,
    read_engine_arguments,
)


class TestFindingTheProgram:
    @pytest.mark.parametrize(
        ("command", "args"),
        [
            (["vllm", "serve", "M"], None),
            (["vllm"], ["serve", "M"]),
            (["/opt/venv/bin/vllm", "serve"], ["M"]),
            (["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "M"], None),
            (["python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server"], ["--model=M"]),
            (["/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"], ["--model=M"]),
            (["python", "-m", "kneekeeper.engine"], ["--model=M"]),
            (["python", "-m", "kneekeeper.engine", "serve"], ["M"]),
            (["sh", "-c", "vllm serve M"], None),
            (["/bin/bash", "-lc"], ["exec vllm serve M"]),
            (["python3", "-m", "vllm.entrypoints.cli.main", "serve"], ["M"]),
            (None, ["vllm", "serve", "M"]),
            (["/usr/bin/env", "vllm", "serve", "M"], None),
            (["tini", "--", "vllm"], ["serve", "M"]),
        ],
    )
    def test_every_plain_form_of_a_vllm_server_is_found(self, command, args):
        arguments = read_engine_arguments(command, args, {})
        assert isinstance(arguments, EngineArguments)
        assert arguments.model == "M"

    @pytest.mark.parametrize(
        ("command", "args", "reason"),
        [
            (["nginx", "-g", "daemon off;"], None, RefusalReason.NOT_VLLM),
            (["vllm", "bench", "serve"], None, RefusalReason.NOT_VLLM),
            (["vllm"], None, RefusalReason.NOT_VLLM),
            (["python3", "-m", "http.server"], None, RefusalReason.NOT_VLLM),
            (["python3", "serve.py"], ["--max-num-seqs=8"], RefusalReason.NOT_VLLM),
            (["python3"], None, RefusalReason.NOT_VLLM),
            (["python3", "-m", "vllm.entrypoints.cli.main", "bench"], None, RefusalReason.NOT_VLLM),
            (["/usr/bin/env", "nginx"], None, RefusalReason.NOT_VLLM),
            (["tini", "--"], ["--model=M"], RefusalReason.NOT_VLLM),
            (["tini", "--"], None, RefusalReason.NOT_VLLM),
            (["numactl", "vllm", "serve", "M"], None, RefusalReason.NOT_UNDERSTOOD),
            (["sh", "start.sh"], None, RefusalReason.SCRIPT_FILE),
            (["zsh", "-c", "vllm serve M"], None, RefusalReason.SHELL_COMMAND),
            (["$(PROGRAM)", "serve", "M"], None, RefusalReason.UNRESOLVED_VARIABLE),
            (None, None, RefusalReason.ENTRYPOINT_UNKNOWN),
            ([], [], RefusalReason.ENTRYPOINT_UNKNOWN),
            (None, ["--model=M"], RefusalReason.ENTRYPOINT_UNKNOWN),
            (None, ["M", "--max-num-seqs=8"], RefusalReason.ENTRYPOINT_UNKNOWN),
        ],
    )
    def test_anything_else_is_refused(self, command, args, reason):
        result = read_engine_arguments(command, args, {})
        assert isinstance(result, Refusal)
        assert result.reason == reason

    @pytest.mark.parametrize("args", [["--model=M"], ["M", "--port=8000"]])
    def test_arguments_alone_are_read_when_the_image_is_certain_to_start_vllm(self, args):
        result = read_engine_arguments(None, args, {}, entrypoint=ImageEntrypoint.VLLM_SERVER)
        assert isinstance(result, EngineArguments)
        assert result.model == "M"

    def test_a_container_without_words_is_refused_even_then_since_args_would_replace_the_images_own(self):
        result = read_engine_arguments(None, None, {}, entrypoint=ImageEntrypoint.VLLM_SERVER)
        assert isinstance(result, Refusal)

    @pytest.mark.parametrize(
        ("image", "entrypoint"),
        [
            ("vllm/vllm-openai:v0.32.0", ImageEntrypoint.VLLM_SERVER),
            ("mirror.example.com:5000/ai/vllm-openai@sha256:00", ImageEntrypoint.VLLM_SERVER),
            ("vllm/vllm-openai", ImageEntrypoint.VLLM_SERVER),
            ("example.com/my-vllm-openai-fork:1", ImageEntrypoint.UNCONFIRMED),
            ("vllm-openai:5000/other:1", ImageEntrypoint.UNCONFIRMED),
        ],
    )
    def test_only_the_names_of_vllms_own_images_are_proof(self, image, entrypoint):
        assert entrypoint_of_image(image) is entrypoint
