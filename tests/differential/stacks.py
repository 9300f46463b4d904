"""Whole control planes that a comparison starts by itself, by name: whose server, scheduler and controllers.

Kubernetes' own programs come from the directory that `DRAY_KUBE_BIN` names. A name may end in `@1.35`: the
programs of Kubernetes then behave like that release (`--emulated-version`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.etcd_server import free_port
from tests.e2e.processes import cluster
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import MASTERS, ApiServerOptions, ControlPlane, Program, format_gates
from tests.kubernetes.dray_services import start_dray


@dataclass(frozen=True)
class StackOptions:
    """What a stack is started with."""

    version: str | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def gate_flags(self) -> list[str]:
        return [f"--feature-gates={format_gates(self.gates)}"] if self.gates else []

    @property
    def server(self) -> ApiServerOptions:
        return ApiServerOptions(feature_gates=self.gates, emulated_version=self.version)


@dataclass(frozen=True)
class Stack:
    """A control plane: its parts in words, and how it is started in a folder."""

    parts: str
    start: Callable[[Path, StackOptions], AbstractContextManager[Path]]
    """Gives the kubeconfig of an administrator."""


@contextmanager
def _start_kubernetes(folder: Path, options: StackOptions) -> Iterator[Path]:
    with ControlPlane.open(folder, options.server) as plane:
        plane.start_scheduler()
        plane.start_controllers()
        yield plane.kubeconfig


@contextmanager
def _start_dray_scheduler(folder: Path, options: StackOptions) -> Iterator[Path]:
    with ControlPlane.open(folder, options.server) as plane:
        start_dray(plane, "scheduler", *options.gate_flags)
        plane.start_controllers()
        yield plane.kubeconfig


@contextmanager
def _start_dray_services(folder: Path, options: StackOptions) -> Iterator[Path]:
    with ControlPlane.open(folder, options.server) as plane:
        start_dray(plane, "scheduler", *options.gate_flags)
        start_dray(plane, "controller", "--upkeep", *options.gate_flags)
        yield plane.kubeconfig


@contextmanager
def _start_dray(folder: Path, options: StackOptions) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    with cluster(folder, *options.gate_flags) as own:
        own.service("scheduler", "dray:scheduler", *options.gate_flags)
        own.service("controller", "dray:controller", "--upkeep", *options.gate_flags)
        yield own.server.kubeconfig


@contextmanager
def _start_dray_server(folder: Path, options: StackOptions) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    emulated = [f"--emulated-version={options.version}"] if options.version else []
    with cluster(folder, *options.gate_flags) as own:
        programs = []
        for name in ("kube-scheduler", "kube-controller-manager"):
            kubeconfig = own.credentials(f"system:{name}", MASTERS)
            listening = ["--bind-address=127.0.0.1", f"--secure-port={free_port()}"]
            listening.append(f"--cert-dir={folder / 'serving'}")
            arguments = [str(require_program(name)), f"--kubeconfig={kubeconfig}", *listening]
            arguments += [*options.gate_flags, *emulated]
            programs.append(Program(arguments, folder / f"{name}.log"))
        try:
            for program in programs:
                program.start()
            yield own.server.kubeconfig
        finally:
            for program in programs:
                program.stop()


STACKS: dict[str, Stack] = {
    "kubernetes": Stack("kube-apiserver, kube-scheduler, kube-controller-manager", _start_kubernetes),
    "dray": Stack("dray server, dray scheduler, dray controller", _start_dray),
    "dray-scheduler": Stack("kube-apiserver, dray scheduler, kube-controller-manager", _start_dray_scheduler),
    "dray-services": Stack("kube-apiserver, dray scheduler, dray controller", _start_dray_services),
    "dray-server": Stack("dray server, kube-scheduler, kube-controller-manager", _start_dray_server),
}


def open_stack(name: str, folder: Path, gates: Mapping[str, bool]) -> AbstractContextManager[Path]:
    """Start the stack `NAME` or `NAME@VERSION`, and give the kubeconfig of its administrator."""
    plain, _, version = name.partition("@")
    return STACKS[plain].start(folder, StackOptions(version or None, gates))


def is_stack(name: str) -> bool:
    return name.partition("@")[0] in STACKS
