"""Fixtures: one control plane for a module, and kubectl against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A kube-apiserver with its defaults; tests start schedulers and controllers."""
    require_program("kube-apiserver")
    folder: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane.open(folder) as opened:
        yield opened


@pytest.fixture
def kubectl(plane: ControlPlane) -> Kubectl:
    return plane.build_kubectl()
