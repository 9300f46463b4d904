"""dray's own services beside a control plane of Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kubernetes.control_plane import MASTERS, ControlPlane, Program

SOURCE = Path(__file__).parents[2] / "src"


def start_dray(plane: ControlPlane, service: str, *flags: str, name: str = "") -> Program:
    """`dray scheduler` or `dray controller`, with the rights of an administrator."""
    kubeconfig = plane.write_kubeconfig(f"dray:{name or service}", MASTERS)
    arguments = [sys.executable, "-m", "dray", service, "--kubeconfig", str(kubeconfig), "--no-leader-elect"]
    return plane.add_command([*arguments, *flags], name or f"dray-{service}", {"PYTHONPATH": str(SOURCE)})
