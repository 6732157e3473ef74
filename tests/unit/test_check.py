"""`kneekeeper check`: what a vLLM version does not accept, with exit codes for CI."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from kneekeeper.cli.main import main
from kneekeeper.domain.arguments.flag_versions import LIFETIMES
from kneekeeper.domain.arguments.flags import FLAGS
from kneekeeper.domain.engine_version import EngineVersion, InvalidEngineVersionError
from kneekeeper.domain.targets.checking import version_of_image

MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  template:
    spec:
      containers:
        - {{name: vllm, image: "{image}", args: {args}}}
"""


@pytest.fixture
def check(tmp_path, capsys):
    def run(args: Sequence[str], *more: str, image: str = "vllm/vllm-openai:v0.24.0") -> tuple[int, list[str]]:
        file = tmp_path / "chat.yaml"
        file.write_text(MANIFEST.format(image=image, args=json.dumps(["--model=m", *args])))
        code = main(["check", "--file", str(file), "--json", *more])
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return code, [problem for engine in told for problem in engine["problems"]]

    return run


@pytest.mark.parametrize(
    ("args", "version", "piece"),
    [
        (["--disable-log-requests"], "0.17.0", "--disable-log-requests does not exist in vLLM 0.17.0 any more"),
        (["--swap_space", "4"], "0.18.0", "--swap-space"),
        (["--num-scheduler-steps=8"], "0.32.0", "--num-scheduler-steps"),
        (["--max-num-partial-prefills", "2"], "v0.28.0", "--max-num-partial-prefills"),
        (["--max-num-active-seqs=4"], "0.30.0", "does not exist in vLLM 0.30.0 yet"),
        (["--cuda-graph-sizes", "8"], "0.13.0", "--cudagraph-capture-sizes"),
        (["--enable-chunked-prefill=false"], "0.8.5", "--no-enable-chunked-prefill"),
        (["--max-num-batched-tokens=8k"], "0.8.0", "8k"),
        (["--max-num-seqs=16", "--max-num-batched-tokens=8"], "0.32.0", "at least max_num_seqs (16)"),
        (["--no-enable-chunked-prefill", "--max-model-len=8k", "--max-num-batched-tokens=4096"], "0.32.0", "(8000)"),
        (["--max-num-seqs=4", "--max-num-active-seqs=8"], "0.32.0", "max_num_active_seqs 8"),
        (["--max-num-seqs=1K"], "0.32.0", "1K"),
        (["--max-num-s=4"], "0.32.0", "--max-num-s"),
        (["--max-num-seqs"], "0.32.0", "without its value"),
    ],
)
def test_what_the_version_does_not_accept_is_found_with_a_next_step(check, args, version, piece):
    code, problems = check(args, "--engine-version", version)
    assert code == 1
    assert len(problems) == 1
    assert piece in problems[0]
    assert problems[0].endswith(".")


@pytest.mark.parametrize(
    ("args", "version"),
    [
        (["--disable-log-requests"], "0.16.0"),
        (["--swap-space=4"], "0.17.0"),
        (["--max-num-active-seqs=4", "--max-num-seqs=8"], "0.31.0"),
        (["--enable-chunked-prefill=false"], "0.8.0"),
        (["--max-num-batched-tokens=8k"], "0.8.5"),
        (["--max-num-seqs=16"], "0.32.0"),
        (['--speculative-config={"method":"ngram"}', "--max-num-batched-tokens=64"], "0.32.0"),
        (["--disable-chunked-mm-input", "--max-num-batched-tokens=64"], "0.32.0"),
    ],
)
def test_what_the_version_accepts_or_nobody_knows_passes(check, args, version):
    assert check(args, "--engine-version", version) == (0, [])


def test_the_images_tag_tells_the_version(check):
    assert check(["--swap-space=4"], image="mirror:5000/vllm-openai:v0.17.1")[0] == 0
    assert check(["--swap-space=4"], image="mirror:5000/vllm-openai:v0.18.0")[0] == 1
    assert check(["--swap-space=4"], image="vllm/vllm-openai:latest")[0] == 0


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.24.0", EngineVersion(0, 24, 0)),
        ("r:5000/vllm-openai:0.33.0rc1@sha256:00", EngineVersion(0, 33, 0)),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai@sha256:00", None),
        ("r:5000/vllm-openai", None),
    ],
)
def test_versions_of_images(image, version):
    assert version_of_image(image) == version


def test_an_engine_that_is_not_understood_has_an_exit_code_of_its_own(check):
    assert check(["--config", "/none.yaml"])[0] == 4


@pytest.mark.parametrize("more", [["--engine-version", "newest"], ["--file", "/none/such.yaml"]])
def test_wrong_usage_is_told(check, capsys, more):
    code, problems = check([], *more)
    assert (code, problems) == (2, [])


def test_a_file_without_an_engine_is_wrong_usage(tmp_path, capsys):
    file = tmp_path / "service.yaml"
    file.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    assert main(["check", "--file", str(file)]) == 2
    assert "no object of the file is known to run vLLM" in capsys.readouterr().err


def test_for_people_each_engine_has_a_line(tmp_path, capsys):
    file = tmp_path / "chat.yaml"
    file.write_text(MANIFEST.format(image="vllm/vllm-openai:v0.24.0", args='["--model=m"]'))
    assert main(["check", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "Deployment/chat, container vllm: vLLM 0.24.0 accepts the arguments.\n"


def test_every_flag_with_a_lifetime_is_in_the_table_of_flags():
    assert LIFETIMES.keys() <= FLAGS.keys()


def test_versions_are_ordered_and_read_from_their_usual_texts():
    assert EngineVersion.parse("v0.9.2") < EngineVersion.parse("0.10.0") < EngineVersion.parse("0.33.0rc1.dev12+gabc")
    with pytest.raises(InvalidEngineVersionError):
        EngineVersion.parse("latest")
