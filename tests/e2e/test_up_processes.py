"""`dray up` in more than one process: a pod with a claim runs, and processes end and come back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import ended, until
from tests.e2e.server import clean_environment, command
from tests.e2e.use_case_cluster import claim, named, pod, request

COMPONENTS = "dray.cluster.services.component_main"


@contextmanager
def upped(folder: Path, processes: str) -> Iterator[subprocess.Popen[bytes]]:
    """`dray up` with one node, in so many processes; its data is under `folder/data`."""
    arguments = ("--nodes", "1", "--runtime", "fake", "--processes", processes)
    log = folder / "up.log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command("up", *arguments, "--data-dir", str(folder / "data"), "--port", "0"),
            stdout=lines,
            stderr=lines,
            stdin=subprocess.DEVNULL,
        )
    try:
        until(lambda: "use it with" in log.read_text() or process.poll() is not None, log.read_text)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        ended(process)
    assert "Traceback" not in log.read_text()


def list_component_processes(pid: int) -> list[int]:
    """The component processes that a process has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if is_component_process(int(child))]


def is_component_process(pid: int) -> bool:
    try:
        return COMPONENTS in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def run_pod(kubectl: Kubectl, name: str) -> None:
    kubectl("apply", "-f", "-", given=claim(name, request("gpu", "gpu")))
    kubectl("apply", "-f", "-", given=pod(name, named(name)))
    until(
        lambda: kubectl.get("pod", name)["status"].get("phase") == "Running",
        lambda: kubectl("get", "pods").out,
    )


@pytest.mark.parametrize(("processes", "count"), [("2", 1), ("3", 2)])
def test_pods_run_whatever_ends(
    tmp_path: Path, home: Path, kubectl_program: str, processes: str, count: int
) -> None:
    with upped(tmp_path, processes) as process:
        kubectl = Kubectl(
            kubectl_program, clean_environment(home, tmp_path / "data" / "admin.kubeconfig"), "default"
        )
        run_pod(kubectl, "first")
        first = list_component_processes(process.pid)
        assert len(first) == count
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        run_pod(kubectl, "second")
        until(lambda: len(list_component_processes(process.pid)) == count)
        second = list_component_processes(process.pid)
        assert not set(first) & set(second)
        for component in ("scheduler", "controller"):
            until(lambda name=component: f"\ndray_{name}_" in kubectl("get", "--raw", "/metrics").out)  # type: ignore[misc]
        ended(process, signal.SIGINT)
        assert process.returncode == 0
        assert not any(map(is_component_process, second))
    assert "was ended by signal 9" in (tmp_path / "up.log").read_text()
    assert not [file for file in (tmp_path / "data").iterdir() if file.is_socket()]


def test_components_end_with_a_cluster_that_is_killed(tmp_path: Path) -> None:
    with upped(tmp_path, "2") as process:
        components = list_component_processes(process.pid)
        assert components
        process.kill()
        process.wait()
        until(lambda: not any(map(is_component_process, components)))


def test_one_process_is_one_process(tmp_path: Path) -> None:
    with upped(tmp_path, "1") as process:
        assert list_component_processes(process.pid) == []


def test_auto_goes_by_the_processors_that_may_be_used(tmp_path: Path) -> None:
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        with upped(tmp_path, "auto") as process:
            assert list_component_processes(process.pid) == []
    finally:
        os.sched_setaffinity(0, usable)
