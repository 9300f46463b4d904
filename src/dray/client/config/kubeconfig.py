"""Kubeconfig files: from a context to an `Access`.

Theory of operation: several files are one configuration; of two entries with one name the first counts, and
so does the first `current-context`. Each entry remembers its file, because names of files in it are relative
to that, and because a message must say where a mistake is. Inside a pod there is no file: the service account
is mounted and the server is in the environment.

Rules for this file: nothing here opens connections or starts programs.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dray.client.config.client_config import (
    Access,
    AccessError,
    Credentials,
    Fixed,
    FromFiles,
    Proof,
    ProofFiles,
    read_file,
)
from dray.client.config.exec_plugin import VERSIONS, FromProgram, Program

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LISTS: Final = {"contexts": "context", "clusters": "cluster", "users": "user"}
_UNSUPPORTED: Final = {
    "auth-provider": "auth providers were removed from Kubernetes; use `exec`",
    "username": "passwords were removed from Kubernetes; use a certificate, a token or `exec`",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A named context, cluster or user: what it says, and in which file."""

    what: str
    name: str
    file: Path
    fields: Mapping[str, Any]

    def wrong(self, field: str, why: str) -> AccessError:
        return AccessError(f"{self.file}: {self.what} `{self.name}`: {field}: {why}")

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(field, f"expected text, got `{type(value).__name__}`")
        return value

    def flag(self, field: str) -> bool:
        value = self.fields.get(field) or False
        if not isinstance(value, bool):
            raise self.wrong(field, f"expected `true` or `false`, got `{value}`")
        return value

    def path(self, field: str) -> str:
        name = self.text(field)
        return str(self.file.parent / name) if name else ""

    def pem(self, field: str) -> bytes:
        """What stands in `<field>-data`, or in the file that `<field>` names."""
        coded = self.text(f"{field}-data")
        if not coded:
            name = self.path(field)
            try:
                return read_file(name, "file") if name else b""
            except AccessError as broken:
                raise self.wrong(field, str(broken)) from None
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(f"{field}-data", "expected base64") from None


class Kubeconfig:
    """One configuration, however many files it was written in."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.current_context = ""
        self._entries: dict[str, dict[str, Entry]] = {what: {} for what in _LISTS}
        for file in files:
            self._merge(file, _document(file))

    def access(self, context: str = "") -> Access:
        """How to reach the server of a context, or of the current one."""
        where = self._context(context)
        cluster = self._named(where, "clusters", "cluster")
        server = cluster.text("server")
        if not server.startswith(("https://", "http://")):
            raise cluster.wrong("server", f"expected for example `https://127.0.0.1:6443`, got `{server}`")
        if cluster.text("proxy-url"):
            raise cluster.wrong("proxy-url", "proxies are not supported; name a server that can be reached")
        user = self._named(where, "users", "user") if where.text("user") else None
        return Access(
            server=server,
            namespace=where.text("namespace") or "default",
            ca=cluster.pem("certificate-authority"),
            server_name=cluster.text("tls-server-name"),
            insecure=cluster.flag("insecure-skip-tls-verify"),
            credentials=_credentials(user, cluster) if user is not None else Fixed(),
            headers=_impersonation(user) if user is not None else {},
            source=str(cluster.file),
        )

    def contexts(self) -> tuple[str, ...]:
        """The names of all contexts."""
        return tuple(self._entries["contexts"])

    def _merge(self, file: Path, document: Mapping[str, Any]) -> None:
        self.current_context = self.current_context or str(document.get("current-context") or "")
        for what, field in _LISTS.items():
            rows = document.get(what) or []
            if not isinstance(rows, list):
                raise AccessError(f"{file}: {what}: expected a list")
            for i, row in enumerate(rows):
                if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                    raise AccessError(f"{file}: {what}[{i}]: expected `name` and `{field}`")
                fields = row.get(field) or {}
                if not isinstance(fields, dict):
                    raise AccessError(f"{file}: {what}[{i}].{field}: expected fields")
                self._entries[what].setdefault(row["name"], Entry(field, row["name"], file, fields))

    def _context(self, name: str) -> Entry:
        wanted = name or self.current_context
        files = ", ".join(str(file) for file in self.files)
        if not wanted:
            raise AccessError(f"{files}: current-context: nothing is chosen; {self._offer('contexts')}")
        found = self._entries["contexts"].get(wanted)
        if found is None:
            raise AccessError(f"{files}: there is no context `{wanted}`; {self._offer('contexts')}")
        return found

    def _named(self, where: Entry, what: str, field: str) -> Entry:
        name = where.text(field)
        found = self._entries[what].get(name)
        if found is None:
            raise where.wrong(field, f"there is no {field} `{name}`; {self._offer(what)}")
        return found

    def _offer(self, what: str) -> str:
        names = ", ".join(f"`{name}`" for name in self._entries[what])
        return f"expected one of {names}" if names else f"there are no {what} at all"


def _document(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as refused:
        raise AccessError(f"cannot read the kubeconfig `{file}`: {refused.strerror or refused}") from None
    except yaml.YAMLError as broken:
        what = " ".join(str(broken).split())
        raise AccessError(f"{file}: not YAML: {what}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise AccessError(f"{file}: expected a kubeconfig with `contexts`, `clusters` and `users`")
    return document


def _credentials(user: Entry, cluster: Entry) -> Credentials:
    for field, why in _UNSUPPORTED.items():
        if user.fields.get(field):
            raise user.wrong(field, why)
    if user.fields.get("exec"):
        return FromProgram(_program(user, cluster))
    fixed = Proof(
        user.text("token"),
        user.pem("client-certificate") if user.text("client-certificate-data") else b"",
        user.pem("client-key") if user.text("client-key-data") else b"",
    )
    files = ProofFiles(
        user.path("tokenFile") if not fixed.token else "",
        user.path("client-certificate") if not fixed.certificate else "",
        user.path("client-key") if not fixed.key else "",
        fixed,
    )
    if bool(fixed.certificate or files.certificate) != bool(fixed.key or files.key):
        raise user.wrong("client-certificate", "a certificate and its key belong together; one is missing")
    return FromFiles(files) if files.token or files.certificate or files.key else Fixed(fixed)


def _program(user: Entry, cluster: Entry) -> Program:
    given = user.fields["exec"]
    if not isinstance(given, dict):
        raise user.wrong("exec", "expected `apiVersion`, `command` and more")
    spec = Entry(f"{user.what} `{user.name}`", "exec", user.file, given)
    version, command = spec.text("apiVersion"), spec.text("command")
    if version not in VERSIONS:
        expected = " or ".join(f"`{known}`" for known in VERSIONS)
        raise spec.wrong("apiVersion", f"expected {expected}, got `{version}`")
    if not command:
        raise spec.wrong("command", "which program to start is missing")
    if spec.text("interactiveMode") == "Always":
        raise spec.wrong("interactiveMode", "`Always` needs a terminal, and there is none; use `IfAvailable`")
    arguments = given.get("args") or []
    environment = given.get("env") or []
    try:
        return Program(
            # A path is relative to the file; a bare name is looked for where programs are.
            str(user.file.parent / command) if "/" in command else command,
            tuple(str(argument) for argument in arguments),
            {str(pair["name"]): str(pair["value"]) for pair in environment},
            version,
            _told(cluster) if spec.flag("provideClusterInfo") else None,
            spec.text("installHint"),
        )
    except (TypeError, KeyError):
        raise spec.wrong("env", "expected a list of `name` and `value`, and `args` as a list") from None


def _told(cluster: Entry) -> dict[str, Any]:
    """A cluster as a credentials program is told of it."""
    told: dict[str, Any] = {"server": cluster.text("server")}
    fields: dict[str, Callable[[], Any]] = {
        "tls-server-name": lambda: cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": lambda: cluster.flag("insecure-skip-tls-verify"),
        "certificate-authority-data": lambda: base64.b64encode(cluster.pem("certificate-authority")).decode(),
    }
    told.update({name: value for name, read in fields.items() if (value := read())})
    for extension in cluster.fields.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _impersonation(user: Entry) -> dict[str, str]:
    headers = {"Impersonate-User": user.text("as"), "Impersonate-Uid": user.text("as-uid")}
    for field in ("as-groups", "as-user-extra"):
        if user.fields.get(field):
            raise user.wrong(field, "groups and extras of another user are not supported; `as` is")
    return {name: value for name, value in headers.items() if value}


def files_named(environment: Mapping[str, str]) -> list[Path]:
    """The kubeconfig files that count: those in `KUBECONFIG`, else the one in the home directory."""
    given = [Path(name) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    if not given:
        return [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]
    return [file for file in given if file.exists()] or given[:1]


def find_access(file: str = "", context: str = "", environment: Mapping[str, str] | None = None) -> Access:
    """How to reach a server: by the file given, `KUBECONFIG`, the usual file, or as the pod we are in."""
    environment = os.environ if environment is None else environment
    if file:
        return Kubeconfig([Path(file)]).access(context)
    files = files_named(environment)
    if not environment.get("KUBECONFIG") and not files[0].exists():
        if in_a_pod(environment):
            return in_cluster(environment)
        raise AccessError(
            f"no server to talk to: there is no `{files[0]}`, `KUBECONFIG` is not set and this is no pod; "
            "name a kubeconfig (`dray server` prints where it wrote one)"
        )
    return Kubeconfig(files).access(context)


def in_a_pod(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod that was told about its server."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT"))


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """The access of the service account mounted into this pod."""
    if not in_a_pod(environment):
        raise AccessError(
            "not in a pod: `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT` are not set; "
            "give a kubeconfig"
        )
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    namespace = folder / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=read_file(str(folder / "ca.crt"), "certificate authority"),
        credentials=FromFiles(ProofFiles(token=str(folder / "token"))),
        source=str(folder),
    )
