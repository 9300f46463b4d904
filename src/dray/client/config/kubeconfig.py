"""Kubeconfig files: build a `ClientConfig` from a context.

Theory of operation: several files are one configuration; of two entries with one name the first counts, and
so does the first `current-context`. Each entry remembers its file, because file names in it are relative to
that, and because error messages name it. Inside a pod there is no file: the service account is mounted and
the server is in the environment.

Rules for this file: nothing here opens connections or starts programs.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from dray.client.config.client_config import (
    ClientConfig,
    ClientConfigError,
    ClientCredential,
    CredentialProvider,
    FileCredentialProvider,
    StaticCredentialProvider,
    read_nonempty_file,
)
from dray.client.config.credential_files import CredentialFiles, InlineCredential
from dray.client.config.exec_plugin import VERSIONS, ExecCredentialProvider, ExecPlugin

SERVICE_ACCOUNT_DIRECTORY: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LISTS: Final = {"contexts": "context", "clusters": "cluster", "users": "user"}
_UNSUPPORTED: Final = {
    "auth-provider": "auth providers were removed from Kubernetes; use `exec`",
    "username": "passwords were removed from Kubernetes; use a certificate, a token or `exec`",
}


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """A named context, cluster or user: its fields, and the file it comes from."""

    kind: str
    name: str
    file: Path
    fields: Mapping[str, Any]

    def build_error(self, field: str, why: str) -> ClientConfigError:
        return ClientConfigError(f"{self.file}: {self.kind} `{self.name}`: {field}: {why}")

    def get_text(self, field: str) -> str:
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.build_error(field, f"expected text, got `{type(value).__name__}`")
        return value

    def get_flag(self, field: str) -> bool:
        value = self.fields.get(field) or False
        if not isinstance(value, bool):
            raise self.build_error(field, f"expected `true` or `false`, got `{value}`")
        return value

    def get_path(self, field: str) -> str:
        name = self.get_text(field)
        return str(self.file.parent / name) if name else ""

    def read_pem(self, field: str) -> bytes:
        """Return the content of `<field>-data`, or of the file that `<field>` names."""
        coded = self.get_text(f"{field}-data")
        if not coded:
            name = self.get_path(field)
            try:
                return read_nonempty_file(name, "file") if name else b""
            except ClientConfigError as broken:
                raise self.build_error(field, str(broken)) from None
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError):
            raise self.build_error(f"{field}-data", "expected base64") from None


class Kubeconfig:
    """One configuration from one or more files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.current_context = ""
        self._entries: dict[str, dict[str, KubeconfigEntry]] = {what: {} for what in _LISTS}
        for file in files:
            self._merge(file, _read_document(file))

    def build_client_config(self, context: str = "") -> ClientConfig:
        """Build the configuration for a context, or for the current one."""
        where = self._find_context(context)
        cluster = self._find_entry(where, "clusters", "cluster")
        server = cluster.get_text("server")
        if not server.startswith(("https://", "http://")):
            raise cluster.build_error(
                "server", f"expected for example `https://127.0.0.1:6443`, got `{server}`"
            )
        if cluster.get_text("proxy-url"):
            raise cluster.build_error(
                "proxy-url", "proxies are not supported; name a server that can be reached"
            )
        user = self._find_entry(where, "users", "user") if where.get_text("user") else None
        return ClientConfig(
            server=server,
            namespace=where.get_text("namespace") or "default",
            ca=cluster.read_pem("certificate-authority"),
            server_name=cluster.get_text("tls-server-name"),
            insecure=cluster.get_flag("insecure-skip-tls-verify"),
            credential_provider=_build_credential_provider(user, cluster)
            if user is not None
            else StaticCredentialProvider(),
            headers=_build_impersonation_headers(user) if user is not None else {},
            source=str(cluster.file),
            context=where.name,
        )

    def find_user(self, name: str) -> KubeconfigEntry:
        """Return the entry of a user; raises `ClientConfigError` when there is none."""
        found = self._entries["users"].get(name)
        if found is None:
            raise ClientConfigError(f"{self.files[0]}: there is no user `{name}`")
        return found

    def list_contexts(self) -> tuple[str, ...]:
        """The names of all contexts."""
        return tuple(self._entries["contexts"])

    def _merge(self, file: Path, document: Mapping[str, Any]) -> None:
        self.current_context = self.current_context or str(document.get("current-context") or "")
        for what, field in _LISTS.items():
            rows = document.get(what) or []
            if not isinstance(rows, list):
                raise ClientConfigError(f"{file}: {what}: expected a list")
            for i, row in enumerate(rows):
                if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                    raise ClientConfigError(f"{file}: {what}[{i}]: expected `name` and `{field}`")
                fields = row.get(field) or {}
                if not isinstance(fields, dict):
                    raise ClientConfigError(f"{file}: {what}[{i}].{field}: expected fields")
                self._entries[what].setdefault(row["name"], KubeconfigEntry(field, row["name"], file, fields))

    def _find_context(self, name: str) -> KubeconfigEntry:
        wanted = name or self.current_context
        files = ", ".join(str(file) for file in self.files)
        if not wanted:
            raise ClientConfigError(
                f"{files}: current-context: nothing is chosen; {self._describe_choices('contexts')}"
            )
        found = self._entries["contexts"].get(wanted)
        if found is None:
            raise ClientConfigError(
                f"{files}: there is no context `{wanted}`; {self._describe_choices('contexts')}"
            )
        return found

    def _find_entry(self, context: KubeconfigEntry, section: str, field: str) -> KubeconfigEntry:
        name = context.get_text(field)
        found = self._entries[section].get(name)
        if found is None:
            raise context.build_error(
                field, f"there is no {field} `{name}`; {self._describe_choices(section)}"
            )
        return found

    def _describe_choices(self, section: str) -> str:
        names = ", ".join(f"`{name}`" for name in self._entries[section])
        return f"expected one of {names}" if names else f"there are no {section} at all"


def _read_document(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as refused:
        raise ClientConfigError(
            f"cannot read the kubeconfig `{file}`: {refused.strerror or refused}"
        ) from None
    except yaml.YAMLError as broken:
        what = " ".join(str(broken).split())
        raise ClientConfigError(f"{file}: not YAML: {what}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ClientConfigError(f"{file}: expected a kubeconfig with `contexts`, `clusters` and `users`")
    return document


def _build_credential_provider(user: KubeconfigEntry, cluster: KubeconfigEntry) -> CredentialProvider:
    for field, why in _UNSUPPORTED.items():
        if user.fields.get(field):
            raise user.build_error(field, why)
    if user.fields.get("exec"):
        return ExecCredentialProvider(_build_exec_plugin(user, cluster))
    fixed = ClientCredential(
        user.get_text("token"),
        user.read_pem("client-certificate") if user.get_text("client-certificate-data") else b"",
        user.read_pem("client-key") if user.get_text("client-key-data") else b"",
    )
    files = CredentialFiles(
        user.get_path("tokenFile") if not fixed.token else "",
        user.get_path("client-certificate") if not fixed.certificate else "",
        user.get_path("client-key") if not fixed.key else "",
        fixed,
    )
    if bool(fixed.certificate or files.certificate) != bool(fixed.key or files.key):
        raise user.build_error(
            "client-certificate", "a certificate and its key belong together; one is missing"
        )
    if files.token or files.certificate or files.key:
        return FileCredentialProvider(files)
    if not fixed.certificate:
        return StaticCredentialProvider(fixed)
    return FileCredentialProvider(InlineCredential(user.file, partial(_read_user, user.file, user.name)))


def _read_user(file: Path, name: str) -> ClientCredential:
    """Read the token, the certificate and the key of a user from a kubeconfig."""
    user = Kubeconfig([file]).find_user(name)
    return ClientCredential(
        user.get_text("token"), user.read_pem("client-certificate"), user.read_pem("client-key")
    )


def _build_exec_plugin(user: KubeconfigEntry, cluster: KubeconfigEntry) -> ExecPlugin:
    given = user.fields["exec"]
    if not isinstance(given, dict):
        raise user.build_error("exec", "expected `apiVersion`, `command` and more")
    spec = KubeconfigEntry(f"{user.kind} `{user.name}`", "exec", user.file, given)
    version, command = spec.get_text("apiVersion"), spec.get_text("command")
    if version not in VERSIONS:
        expected = " or ".join(f"`{known}`" for known in VERSIONS)
        raise spec.build_error("apiVersion", f"expected {expected}, got `{version}`")
    if not command:
        raise spec.build_error("command", "which program to start is missing")
    if spec.get_text("interactiveMode") == "Always":
        raise spec.build_error(
            "interactiveMode", "`Always` needs a terminal, and there is none; use `IfAvailable`"
        )
    arguments = given.get("args") or []
    environment = given.get("env") or []
    try:
        return ExecPlugin(
            # A path is relative to the file; a bare name is looked up in PATH.
            str(user.file.parent / command) if "/" in command else command,
            tuple(str(argument) for argument in arguments),
            {str(pair["name"]): str(pair["value"]) for pair in environment},
            version,
            _build_exec_cluster(cluster) if spec.get_flag("provideClusterInfo") else None,
            spec.get_text("installHint"),
        )
    except (TypeError, KeyError):
        raise spec.build_error("env", "expected a list of `name` and `value`, and `args` as a list") from None


def _build_exec_cluster(cluster: KubeconfigEntry) -> dict[str, Any]:
    """Build the cluster information for an exec plugin."""
    info: dict[str, Any] = {"server": cluster.get_text("server")}
    fields: dict[str, Callable[[], Any]] = {
        "tls-server-name": lambda: cluster.get_text("tls-server-name"),
        "insecure-skip-tls-verify": lambda: cluster.get_flag("insecure-skip-tls-verify"),
        "certificate-authority-data": lambda: base64.b64encode(
            cluster.read_pem("certificate-authority")
        ).decode(),
    }
    info.update({name: value for name, read in fields.items() if (value := read())})
    for extension in cluster.fields.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


def _build_impersonation_headers(user: KubeconfigEntry) -> dict[str, str]:
    headers = {"Impersonate-User": user.get_text("as"), "Impersonate-Uid": user.get_text("as-uid")}
    for field in ("as-groups", "as-user-extra"):
        if user.fields.get(field):
            raise user.build_error(field, "groups and extras of another user are not supported; `as` is")
    return {name: value for name, value in headers.items() if value}


def find_kubeconfig_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfig files that count: those in `KUBECONFIG`, else the one in the home directory."""
    given = [Path(name) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    if not given:
        return [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]
    return [file for file in given if file.exists()] or given[:1]


def load_client_config(
    file: str = "", context: str = "", environment: Mapping[str, str] | None = None
) -> ClientConfig:
    """Load the configuration from the file given, `KUBECONFIG`, the default file, or the pod we are in."""
    environment = os.environ if environment is None else environment
    if file:
        return Kubeconfig([Path(file)]).build_client_config(context)
    files = find_kubeconfig_files(environment)
    if not environment.get("KUBECONFIG") and not files[0].exists():
        if is_in_pod(environment):
            return load_in_cluster_config(environment)
        raise ClientConfigError(
            f"no server to talk to: there is no `{files[0]}`, `KUBECONFIG` is not set and this is no pod; "
            "name a kubeconfig (`dray server` prints where it wrote one)"
        )
    return Kubeconfig(files).build_client_config(context)


def is_in_pod(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod with a service account."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT"))


def load_in_cluster_config(
    environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_DIRECTORY
) -> ClientConfig:
    """Load the configuration of the service account mounted into this pod."""
    if not is_in_pod(environment):
        raise ClientConfigError(
            "not in a pod: `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT` are not set; "
            "give a kubeconfig"
        )
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    namespace = folder / "namespace"
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=read_nonempty_file(str(folder / "ca.crt"), "certificate authority"),
        credential_provider=FileCredentialProvider(CredentialFiles(token=str(folder / "token"))),
        source=str(folder),
    )
