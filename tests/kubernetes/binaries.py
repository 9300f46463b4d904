"""Where the programs of Kubernetes are: in the directory that `DRAY_KUBE_BIN` names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "DRAY_KUBE_BIN"
NO_KUBERNETES = (
    f"NO KUBERNETES: nothing is tested against Kubernetes itself; set {VARIABLE} to a directory with "
    "kube-apiserver, kube-scheduler, kube-controller-manager and kubelet"
)


def find_program(name: str) -> Path | None:
    """The program of this name in the directory; None when there is no directory or no such program."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return None
    program = Path(directory) / name
    return program.resolve() if os.access(program, os.X_OK) else None


def require_program(name: str) -> Path:
    """The program of this name; a test that needs a missing one is skipped with a note."""
    if not os.environ.get(VARIABLE):
        pytest.skip(NO_KUBERNETES)
    program = find_program(name)
    if program is None:
        pytest.skip(
            f"NO {name.upper()}: {VARIABLE} is set, but its directory has no `{name}` that can be run"
        )
    return program
