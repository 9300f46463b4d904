"""One server for all tests, and a kubectl in a fresh namespace for each."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.running import pytest_pyfunc_call
from tests.e2e.kubectl import NO_KUBECTL, Kubectl
from tests.e2e.server import Running, clean_environment, running
from tests.e2e.use_case_cluster import Stage, upped

__all__ = ["pytest_pyfunc_call"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where clients keep their caches."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def kubectl_program() -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip(NO_KUBECTL)
    return program


@pytest.fixture
def kubectl(server: Running, home: Path, kubectl_program: str) -> Kubectl:
    """The administrator's kubectl, in a namespace that nobody else uses."""
    name = f"test-{next(_numbers)}"
    command = Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), name)
    command("create", "namespace", name)
    return command


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of one `dray up` for all use cases."""
    with upped(tmp_path_factory.mktemp("up")) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def stage(up: Path, home: Path, kubectl_program: str) -> Iterator[Stage]:
    """A namespace of `dray up`, in a cluster that has nothing else."""
    opened = Stage.opened(kubectl_program, home, up)
    yield opened
    opened.cleared()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if shutil.which("kubectl") is None:
        terminalreporter.section("kubectl", red=True)
        terminalreporter.write_line(f"WARNING: {NO_KUBECTL}", red=True)
