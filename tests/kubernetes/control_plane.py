"""A control plane of Kubernetes on loopback: etcd, kube-apiserver and, if started, scheduler and controllers.

Everything is a process of its own with its files in one folder; each can be killed, paused and started again.
Usable in tests (the fixtures of `conftest`) and in campaigns (`with ControlPlane.open(folder) as plane`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from tests.contract import etcd_server
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import ended, until
from tests.kubernetes.binaries import require_program

MASTERS = "system:masters"
LOG_TAIL = 4000
"""Characters of a program's log that a failure shows."""

API_VERSIONS = "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true"


class Program:
    """A process with a log, which can be stopped, killed, paused and started again as it was."""

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.arguments = list(arguments)
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as lines:
            self._process = subprocess.Popen(
                self.arguments, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL, env=self._environment
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it like a power loss would."""
        self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            ended(self._process, how)
            self._process = None

    def read_log_end(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"{self.arguments[0]}: running={self.running}\n{text[-LOG_TAIL:]}"


@dataclass(frozen=True)
class ApiServerOptions:
    """What a kube-apiserver is started with."""

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    emulated_version: str | None = None
    """Serve the API of an older release, such as `1.35`."""
    flags: tuple[str, ...] = ()

    def build_flags(self) -> list[str]:
        flags = list(self.flags)
        if self.feature_gates:
            flags.append(f"--feature-gates={format_gates(self.feature_gates)}")
        if self.emulated_version:
            flags += [f"--emulated-version={self.emulated_version}", "--emulation-forward-compatible=false"]
        return flags


def format_gates(gates: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(enabled).lower()}" for name, enabled in sorted(gates.items()))


def _write_token_key(file: Path) -> None:
    """Write the key that signs tokens of service accounts, in the only form kube-apiserver reads."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


class ServerPlane:
    """An API server of any kind, and what was started beside it."""

    api_server: Program

    def __init__(
        self, folder: Path, stack: ExitStack, certificates: CertificateAuthority, options: ApiServerOptions
    ) -> None:
        self.folder = folder
        self.options = options
        self._stack = stack
        self._certificates = certificates
        self._token_key = certificates.ca_file.parent / "service-account.key"
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self.write_kubeconfig("admin", MASTERS)

    def wait_until_ready(self) -> None:
        until(lambda: self.is_ready() or not self.api_server.running, self.api_server.read_log_end)
        assert self.api_server.running, self.api_server.read_log_end()

    def is_ready(self) -> bool:
        context = ssl.create_default_context(cadata=self._certificates.ca_pem.decode())
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def keys(self) -> CertificateAuthority:
        """The authority that signs the certificates of the server and of its clients."""
        return self._certificates

    def redirect_clients(self, url: str) -> None:
        """Have programs that are started from now on connect to another address, such as a proxy's."""
        self.url = url

    def write_kubeconfig(self, user: str, *groups: str, days: int = 2) -> Path:
        """A kubeconfig with a client certificate for the user; the same file for the same user."""
        file = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        made = self._certificates.issue_client_certificate(user, groups, days=days)
        document = build_kubeconfig(self.url, self._certificates.ca_pem, made, user=user)
        file.write_text(json.dumps(document))
        return file

    def build_kubectl(self, namespace: str = "default") -> Kubectl:
        """Build a kubectl with the rights of an administrator."""
        program = shutil.which("kubectl")
        assert program is not None, "these tests need kubectl on PATH"
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}
        return Kubectl(program, environment, namespace)

    def create_node(self, name: str, **capacity: str) -> None:
        """Create a node that is ready for pods, without a kubelet; what it has is part of its status."""
        kubectl = self.build_kubectl()
        kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "500", **capacity}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        patch = json.dumps({"status": status})
        kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
        kubectl("taint", "node", name, "node.kubernetes.io/not-ready-", fails=None)

    def add(self, program: str, *flags: str, name: str | None = None) -> Program:
        """Start one of Kubernetes' programs; it ends with the control plane."""
        return self.add_command([str(require_program(program)), *flags], name or program)

    def add_command(
        self, arguments: Sequence[str], name: str, environment: Mapping[str, str] | None = None
    ) -> Program:
        """Start any program beside; `name` names its log file."""
        started = Program(arguments, self.folder / f"{name}.log", environment)
        self._stack.callback(started.stop, signal.SIGKILL)
        started.start()
        return started

    def start_scheduler(self, *flags: str, name: str = "kube-scheduler") -> Program:
        """kube-scheduler, which schedules every pod without another `schedulerName`."""
        kubeconfig = self.write_kubeconfig("system:kube-scheduler")
        return self.add(
            "kube-scheduler",
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            *self._build_component_flags(),
            *flags,
            name=name,
        )

    def start_controllers(self, *flags: str) -> Program:
        """kube-controller-manager with all its controllers that work here."""
        kubeconfig = self.write_kubeconfig("system:kube-controller-manager", MASTERS)
        return self.add(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={self._token_key}",
            f"--root-ca-file={self._certificates.ca_file}",
            *self._build_component_flags(),
            *flags,
        )

    def _build_component_flags(self) -> list[str]:
        flags = [
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'serving'}",
        ]
        gates = self.options.feature_gates
        if gates:
            flags.append(f"--feature-gates={format_gates(gates)}")
        if self.options.emulated_version:
            flags.append(f"--emulated-version={self.options.emulated_version}")
        return flags


class ControlPlane(ServerPlane):
    """etcd and a kube-apiserver that answer, and what was started beside them."""

    def __init__(self, folder: Path, stack: ExitStack, options: ApiServerOptions) -> None:
        super().__init__(folder, stack, CertificateAuthority.open(folder / "keys"), options)
        _write_token_key(self._token_key)
        self._etcd = self._start_etcd()
        self.api_server = self.add("kube-apiserver", *self._build_api_server_flags())

    @classmethod
    @contextmanager
    def open(cls, folder: Path, options: ApiServerOptions | None = None) -> Iterator[Self]:
        """Start etcd and kube-apiserver, and end everything that was started in the end."""
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            plane = cls(folder, stack, options or ApiServerOptions())
            plane.wait_until_ready()
            yield plane

    @property
    def etcd_endpoint(self) -> str:
        """Where its etcd is, with everything that was ever stored."""
        return self._etcd.endpoints[0]

    def _start_etcd(self) -> etcd_server.Cluster:
        program = etcd_server.binary(self.folder)
        assert program is not None, etcd_server.NO_ETCD
        cluster = etcd_server.Cluster.of(self.folder / "etcd", program)
        self._stack.callback(cluster.stop)
        return cluster

    def _build_api_server_flags(self) -> list[str]:
        keys = self._certificates
        return [
            f"--etcd-servers=http://{self._etcd.endpoints[0]}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={keys.serving_file}",
            f"--tls-private-key-file={keys.serving_file}",
            f"--client-ca-file={keys.ca_file}",
            f"--service-account-key-file={self._token_key}",
            f"--service-account-signing-key-file={self._token_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=Node,RBAC",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
            f"--runtime-config={API_VERSIONS}",
            *self.options.build_flags(),
        ]
