"""The cluster's certificate authority, its certificates and kubeconfigs, made with the openssl program."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster.commands import run

_VALID_DAYS = 3650
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
"""Elliptic-curve keys: a dozen of them take well under a second, where RSA takes several."""


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for, as Kubernetes reads it: a user and its groups."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The subject in openssl's notation."""
        return "".join(f"/O={_escape(group)}" for group in self.groups) + f"/CN={_escape(self.user)}"


def service_account(namespace: str, name: str) -> Identity:
    """The user and groups that the API server gives to a ServiceAccount's tokens: RBAC treats both alike."""
    return Identity(
        f"system:serviceaccount:{namespace}:{name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
    )


@dataclass(frozen=True)
class ServerNames:
    """The names and addresses a server's certificate holds for; a client's has none."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    @property
    def extension(self) -> str:
        """The subjectAltName extension in openssl's notation."""
        return "subjectAltName=" + ",".join([*(f"DNS:{name}" for name in self.dns), *(f"IP:{ip}" for ip in self.ips)])


CLIENT_ONLY = ServerNames()


def certificate_arguments(
    identity: Identity, names: ServerNames, authority: Path, certificate: Path, key: Path
) -> list[str]:
    """The openssl command that makes a key and has it signed by `authority` (a path without suffix)."""
    usages = ["clientAuth"]
    extensions = ["-addext", "basicConstraints=critical,CA:FALSE"]
    if names != CLIENT_ONLY:
        usages.append("serverAuth")
        extensions += ["-addext", names.extension]
    extensions += ["-addext", f"extendedKeyUsage={','.join(usages)}"]
    signer = ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subject = ["-subj", identity.subject, "-days", str(_VALID_DAYS)]
    return ["openssl", "req", "-x509", *_NEW_KEY, *signer, *subject, *extensions, *files]


def render_kubeconfig(server: str, authority_file: Path, certificate: Path, key: Path) -> str:
    """A kubeconfig with everything inside, so that it can be copied elsewhere."""

    def embedded(file: Path) -> str:
        return b64encode(file.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kneekeeper",
        "contexts": [{"name": "kneekeeper", "context": {"cluster": "kneekeeper", "user": "kneekeeper"}}],
        "clusters": [
            {
                "name": "kneekeeper",
                "cluster": {"server": server, "certificate-authority-data": embedded(authority_file)},
            }
        ],
        "users": [
            {
                "name": "kneekeeper",
                "user": {"client-certificate-data": embedded(certificate), "client-key-data": embedded(key)},
            }
        ],
    }
    return yaml.safe_dump(config, sort_keys=False)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder, and what it signs."""

    folder: Path
    server: str
    """The API server's URL, which its kubeconfigs name."""

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs ServiceAccount tokens."""
        return self.folder / "service-account.key"

    def create(self) -> None:
        """Makes the authority's own key and certificate, and the key for ServiceAccount tokens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        files = ["-keyout", str(self.folder / "ca.key"), "-out", str(self.certificate)]
        subject = ["-subj", "/CN=kneekeeper-ca", "-days", str(_VALID_DAYS)]
        run(["openssl", "req", "-x509", *_NEW_KEY, *subject, *files])
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.service_account_key])

    def sign(self, name: str, identity: Identity, names: ServerNames = CLIENT_ONLY) -> tuple[Path, Path]:
        """A certificate and its key under `name`."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        run(certificate_arguments(identity, names, self.folder / "ca", certificate, key))
        return certificate, key

    def kubeconfig(self, name: str, identity: Identity) -> Path:
        """A kubeconfig that acts as `identity`."""
        certificate, key = self.sign(name, identity)
        target = self.folder / f"{name}.kubeconfig"
        target.touch(mode=0o600)
        target.write_text(render_kubeconfig(self.server, self.certificate, certificate, key))
        return target


def _escape(value: str) -> str:
    return "".join(f"\\{char}" if char in "/+\\" else char for char in value)


def subject_names(addresses: Sequence[str]) -> ServerNames:
    """What clients may call the API server by, besides `addresses`."""
    return ServerNames(
        dns=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        ips=("127.0.0.1", *addresses),
    )
