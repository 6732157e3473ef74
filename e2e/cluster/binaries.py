"""The programs that no Debian package brings: built once from Go modules into a cache keyed by recipe."""

import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import cache_dir
from e2e.cluster.progress import told

_HERE = Path(__file__).parent
_BUILD_TIMEOUT_S = 3600.0
"""Kubernetes from nothing takes 6 minutes on two idle cores; a busy machine may need several times that."""


@dataclass(frozen=True)
class Recipe:
    """How one set of programs is built from the Go module in the folder of the same name."""

    name: str
    programs: tuple[str, ...]
    pattern: str
    """What `go build` builds: `tool` for the tools that go.mod names, `.` for the folder's own main package."""
    version_module: str | None = None
    """The required module whose version names the result; None for a program that lives here."""
    version_variables: tuple[str, ...] = ()
    """Linker variables that get this version: without them the programs call themselves v0.0.0."""

    @property
    def source(self) -> Path:
        """The folder that holds go.mod."""
        return _HERE / self.name

    @property
    def version(self) -> str:
        """The version in go.mod, such as v1.34.4; `local` for a program that lives here."""
        if self.version_module is None:
            return "local"
        return required_version((self.source / "go.mod").read_text(), self.version_module)

    @property
    def linker_flags(self) -> str:
        """Stripped, and with the version where the programs look for it."""
        version = self.version
        return " ".join(["-s -w", *(f"-X {variable}={version}" for variable in self.version_variables)])

    @property
    def key(self) -> str:
        """The cache folder's name: it changes with everything that the result is made of."""
        digest = hashlib.sha256(f"{self.pattern}\0{self.linker_flags}".encode())
        for file in sorted(self.source.glob("*")):
            if file.suffix in {".mod", ".sum", ".go"}:
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:8]}"


KUBERNETES = Recipe(
    "kubernetes",
    ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"),
    pattern="tool",
    version_module="k8s.io/kubernetes",
    version_variables=("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"),
)
CNI = Recipe(
    "cni",
    ("ptp", "host-local", "loopback"),
    pattern="tool",
    version_module="github.com/containernetworking/plugins",
)
COREDNS = Recipe("coredns", ("coredns",), pattern=".", version_module="github.com/coredns/coredns")
HELM = Recipe("helm", ("helm",), pattern="tool", version_module="helm.sh/helm/v3")
PAUSE = Recipe("pause", ("pause",), pattern=".")

ALL_RECIPES = (PAUSE, CNI, COREDNS, HELM, KUBERNETES)


def required_version(go_mod: str, module: str) -> str:
    """The version at which a go.mod requires `module`; raises `ClusterError` when it does not."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError(f"go.mod does not require {module}; add it with `go get {module}@VERSION`")
    return found.group(1)


def ensure_built(recipe: Recipe, cache: Path | None = None) -> Path:
    """The folder with the recipe's programs, built now unless the cache has it.

    A build goes to a folder of its own and is renamed when it is whole, so an interrupted one never counts.
    Raises `ClusterError` when Go is missing or the build fails.
    """
    root = (cache or cache_dir()) / "bin"
    target = root / recipe.key
    if target.is_dir():
        return target
    with exclusive(root / f"{recipe.name}.lock"):
        if not target.is_dir():
            _build(recipe, target)
    return target


def _build(recipe: Recipe, target: Path) -> None:
    if shutil.which("go") is None:
        raise ClusterError("Go is not on this machine; install Go 1.25 or newer and put it on PATH")
    unfinished = Path(tempfile.mkdtemp(prefix=f".{recipe.name}-", dir=target.parent))
    try:
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={recipe.linker_flags}"]
        length = ", the longest of all: minutes" if recipe is KUBERNETES else ""
        with told(f"Building {recipe.name} {recipe.version} from source (once{length})."):
            run(
                ["go", "build", *flags, "-o", f"{unfinished}{os.sep}", recipe.pattern],
                cwd=recipe.source,
                timeout_s=_BUILD_TIMEOUT_S,
            )
        missing = [program for program in recipe.programs if not (unfinished / program).is_file()]
        if missing:
            raise ClusterError(f"{recipe.name} built without {', '.join(missing)}; add them to its go.mod's tools")
        unfinished.chmod(0o755)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
