"""Built programs are kept by recipe: whatever would change them changes the key, and half a build never counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cluster import binaries
from e2e.cluster.binaries import ALL_RECIPES, KUBERNETES, PAUSE, Recipe, ensure_built, required_version
from e2e.cluster.errors import ClusterError, CommandFailed


@dataclass(frozen=True)
class _RecipeAt(Recipe):
    """A recipe whose sources are elsewhere."""

    at: Path = Path()

    @property
    def source(self) -> Path:
        return self.at


@pytest.fixture
def recipe(tmp_path: Path) -> _RecipeAt:
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module example\n\ngo 1.24\n")
    (source / "main.go").write_text("package main\n\nfunc main() {}\n")
    return _RecipeAt("example", ("example",), pattern=".", at=source)


def test_a_version_is_read_from_either_form_of_require():
    assert required_version("require k8s.io/kubernetes v1.34.4\n", "k8s.io/kubernetes") == "v1.34.4"
    block = "require (\n\tk8s.io/kubernetes-x v9.9.9\n\tk8s.io/kubernetes v1.34.4 // indirect\n)\n"
    assert required_version(block, "k8s.io/kubernetes") == "v1.34.4"


def test_a_module_that_is_not_required_names_the_next_step():
    with pytest.raises(ClusterError, match="go get"):
        required_version("module example\n", "k8s.io/kubernetes")


def test_every_recipe_has_sources_and_a_key_with_its_version():
    for recipe in ALL_RECIPES:
        assert recipe.key.startswith(f"{recipe.name}-{recipe.version}-")
    assert f"gitVersion={KUBERNETES.version}" in KUBERNETES.linker_flags


def test_a_change_of_sources_or_flags_changes_the_key(recipe: _RecipeAt):
    first = recipe.key
    (recipe.at / "notes.txt").write_text("not compiled")
    assert recipe.key == first
    (recipe.at / "main.go").write_text("package main\n\nfunc main() { println() }\n")
    second = recipe.key
    assert second != first
    flagged = _RecipeAt("example", ("example",), pattern=".", version_variables=("main.version",), at=recipe.at)
    assert flagged.key != second


def test_what_is_built_is_not_built_again(recipe: _RecipeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready = tmp_path / "cache" / "bin" / recipe.key
    ready.mkdir(parents=True)
    monkeypatch.setattr(binaries, "run", _never)
    assert ensure_built(recipe, tmp_path / "cache") == ready


def test_a_failed_build_leaves_nothing_that_counts(recipe: _RecipeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binaries, "run", _never)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(CommandFailed):
        ensure_built(recipe, tmp_path)
    assert [entry.name for entry in (tmp_path / "bin").iterdir()] == ["example.lock"]


def test_a_build_without_one_of_its_programs_does_not_count(
    recipe: _RecipeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(binaries, "run", lambda *_, **__: "")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(ClusterError, match="built without example"):
        ensure_built(recipe, tmp_path)
    assert not (tmp_path / "bin" / recipe.key).exists()


def test_a_machine_without_go_is_told_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ClusterError, match="install Go"):
        ensure_built(PAUSE, tmp_path)


def _never(*_: object, **__: object) -> str:
    raise CommandFailed("the build broke off")
