"""What lies in the folder is all that an engine needs, on any Python that vLLM runs on."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import kneekeeper.livetune
from kneekeeper.livetune.deliver import PACKAGE, deliver

MODULES = sorted(Path(kneekeeper.livetune.__file__).parent.glob("*.py"))

_ENGINE = """
import sys
from importlib.metadata import entry_points
import types

class Scheduler:
    def __init__(self):
        self.max_num_running_reqs, self.max_num_scheduled_tokens = 16, 256

module = types.ModuleType("vllm.v1.core.sched.scheduler")
module.Scheduler = Scheduler
for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[module.__name__] = module
sys.modules["vllm"].__version__ = "0.1.0"
before = Scheduler.__init__
[plugin] = [found for found in entry_points(group="vllm.general_plugins") if found.name == "kneekeeper_livetune"]
plugin.load()()
foreign = [name for name in sys.modules if name.split(".")[0] == "kneekeeper"]
print(Scheduler.__init__ is not before, foreign)
scheduler = Scheduler()
print(scheduler.max_num_running_reqs, hasattr(scheduler, "kneekeeper_livetune"))
"""


def engine_with(folder: Path, **environment: str) -> list[str]:
    """What an engine without kneekeeper on its path makes of the folder."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("KNEEKEEPER", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", _ENGINE],
        env={**bare, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_an_engine_finds_the_plugin_by_pythonpath_alone_and_needs_nothing_else_of_kneekeeper(tmp_path: Path):
    deliver(tmp_path)
    port = {"KNEEKEEPER_LIVETUNE_HOST": "127.0.0.1", "KNEEKEEPER_LIVETUNE_PORT": "0"}
    lines = engine_with(tmp_path, KNEEKEEPER_LIVETUNE_TOKEN="secret", **port)
    assert lines == ["True []", "16 True"]


def test_without_a_token_it_touches_nothing(tmp_path: Path):
    deliver(tmp_path)
    assert engine_with(tmp_path) == ["False []", "16 False"]


def test_a_channel_that_cannot_open_keeps_no_engine_from_starting(tmp_path: Path):
    deliver(tmp_path)
    lines = engine_with(tmp_path, KNEEKEEPER_LIVETUNE_TOKEN="secret", KNEEKEEPER_LIVETUNE_PORT="none")
    assert lines == ["True []", "16 False"]


def test_a_delivery_that_was_cut_off_is_made_whole(tmp_path: Path):
    deliver(tmp_path)
    (tmp_path / PACKAGE / "limits.py").write_text("half")
    (tmp_path / PACKAGE / "old.py").write_text("")
    deliver(tmp_path)
    assert {p.name for p in (tmp_path / PACKAGE).iterdir()} == {p.name for p in MODULES}
    assert (tmp_path / PACKAGE / "limits.py").read_text() != "half"


def test_every_user_may_read_it(tmp_path: Path):
    before = os.umask(0o077)
    try:
        deliver(tmp_path)
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_the_command_writes_into_the_folder_that_it_is_given(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "kneekeeper.livetune.deliver", str(tmp_path)], check=True, timeout=60)
    assert (tmp_path / PACKAGE / "plugin.py").is_file()


def test_it_is_written_for_the_oldest_python_that_vllm_runs_on():
    for module in MODULES:
        tree = ast.parse(module.read_text(), feature_version=(3, 9))
        first = [n.module for n in tree.body if isinstance(n, ast.ImportFrom)][:1]
        assert first == ["__future__"] or module.name == "__init__.py", module


def test_it_imports_the_standard_library_itself_and_vllm_alone():
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in {*sys.stdlib_module_names, "vllm"}, (module.name, name)
