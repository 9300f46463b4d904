"""Upstream's own drivers pass the required checks of the conformance suite, on a kube-apiserver.

The suite calls them in the role of a kubelet: over their registration sockets, and the sockets those name.
The programs are `dra-test-driver` of Kubernetes' end-to-end tests and `dra-example-kubeletplugin` of
`dra-example-driver`, built against the same release.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dray.client.connect import connect
from dray.driver.conformance import (
    ConformanceLevel,
    ConformanceOptions,
    ConformanceReport,
    ConformanceVerdict,
    run_conformance,
)
from tests.contract.kitted import short_folder
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ControlPlane, Program


@dataclass(frozen=True)
class UpstreamDriver:
    """A driver of Kubernetes, as a process of its own, with its directories below one folder."""

    program: Program
    name: str
    node: str
    registry: Path
    cdi: Path

    def has_socket(self) -> bool:
        return any(each.is_socket() for each in self.registry.iterdir())

    def find_socket(self) -> Path:
        (socket,) = (each for each in self.registry.iterdir() if each.is_socket())
        return socket

    async def restart(self) -> None:
        """Kill it and start it again; the sockets of the killed process are removed to see the new ones."""
        self.program.kill()
        self.find_socket().unlink()
        self.program.start()


@contextmanager
def run_test_driver(plane: ControlPlane, node: str) -> Iterator[UpstreamDriver]:
    with short_folder() as folder:
        name = "test-driver.cdi.k8s.io"
        driver = _start(
            plane,
            folder,
            name,
            node,
            [
                str(require_program("dra-test-driver")),
                f"--kubeconfig={plane.kubeconfig}",
                "kubelet-plugin",
                f"--node-name={node}",
                f"--plugin-registration-path={folder / 'registry'}",
                f"--datadir={folder / 'plugins'}",
                f"--cdi-dir={folder / 'cdi'}",
            ],
        )
        yield from _serve(driver)


@contextmanager
def run_example_driver(plane: ControlPlane, node: str) -> Iterator[UpstreamDriver]:
    with short_folder() as folder:
        name = "gpu.example.com"
        driver = _start(
            plane,
            folder,
            name,
            node,
            [
                str(require_program("dra-example-kubeletplugin")),
                f"--kubeconfig={plane.kubeconfig}",
                f"--node-name={node}",
                f"--kubelet-registrar-directory-path={folder / 'registry'}",
                f"--kubelet-plugins-directory-path={folder / 'plugins'}",
                f"--cdi-root={folder / 'cdi'}",
                "--num-devices=4",
            ],
        )
        yield from _serve(driver)


def _start(plane: ControlPlane, folder: Path, name: str, node: str, command: list[str]) -> UpstreamDriver:
    for directory in ("registry", f"plugins/{name}", "cdi"):
        (folder / directory).mkdir(parents=True)
    plane.create_node(node)
    program = plane.add_command(command, name)
    return UpstreamDriver(program, name, node, folder / "registry", folder / "cdi")


def _serve(driver: UpstreamDriver) -> Iterator[UpstreamDriver]:
    until(lambda: driver.has_socket() or not driver.program.running, driver.program.read_log_end)
    assert driver.program.running, driver.program.read_log_end()
    try:
        yield driver
    finally:
        driver.program.stop()


def examine(plane: ControlPlane, kubectl: Kubectl, driver: UpstreamDriver) -> ConformanceReport:
    """Run the whole suite, once the driver has published its devices."""

    def is_published() -> bool:
        found = kubectl.get("resourceslices")["items"]
        return any(each["spec"]["driver"] == driver.name for each in found)

    until(is_published, driver.program.read_log_end)

    async def run() -> ConformanceReport:
        async with connect(str(plane.kubeconfig)) as client:
            options = ConformanceOptions(
                driver.find_socket(), cdi_dir=driver.cdi, restart=driver.restart, node=driver.node
            )
            return await run_conformance(client, options)

    return asyncio.run(run())


def list_others(report: ConformanceReport, level: ConformanceLevel) -> Mapping[str, str]:
    """The checks of a level that did not succeed, each with its message."""
    return {
        each.check: f"{each.verdict.value}: {each.why}"
        for each in report.results
        if each.level is level and each.verdict is not ConformanceVerdict.YES
    }


LIBRARY_FAILS = {"error-entries", "batch-mixed", "held-device", "late-prepare", "restart-held"}
"""Advised checks that no driver on Kubernetes' helper library passes by itself: it reads all claims of a call
before it calls the driver, and fails the call when one of them cannot be prepared; it keeps no records of
claims."""


@pytest.fixture(scope="module", autouse=True)
def controllers(plane: ControlPlane) -> None:
    """Kubernetes' own controllers, which delete namespaces and watch over reservations."""
    plane.start_controllers()


def test_the_test_driver_passes_what_is_required(plane: ControlPlane, kubectl: Kubectl) -> None:
    with run_test_driver(plane, "node-t") as driver:
        report = examine(plane, kubectl, driver)
    assert list_others(report, ConformanceLevel.REQUIRED) == {}
    # It keeps prepared claims in memory only.
    assert set(list_others(report, ConformanceLevel.ADVISED)) == {*LIBRARY_FAILS, "restart-removed"}


def test_the_example_driver_passes_what_is_required(plane: ControlPlane, kubectl: Kubectl) -> None:
    with run_example_driver(plane, "node-e") as driver:
        (common,) = driver.cdi.iterdir()
        content = common.read_bytes()
        report = examine(plane, kubectl, driver)
        assert [(path, path.read_bytes()) for path in driver.cdi.iterdir()] == [(common, content)]
    assert list_others(report, ConformanceLevel.REQUIRED) == {}
    # It answers from its checkpoint without looking for the CDI file; it has no health to report.
    advised = list_others(report, ConformanceLevel.ADVISED)
    assert set(advised) == {*LIBRARY_FAILS, "health-report", "reboot", "crash"}
    assert advised["health-report"].startswith("not tried: the health service answers UNIMPLEMENTED")
