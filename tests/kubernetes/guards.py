"""`dray guard` beside a control plane of Kubernetes, with the rights and the webhook of deploy/guard.yaml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from tests.contract.etcd_server import free_port
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.dray_services import SOURCE

MANIFEST = Path(__file__).parents[2] / "deploy" / "guard.yaml"
USER = "system:serviceaccount:kube-system:dray-guard"
_RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_WEBHOOK = "ValidatingWebhookConfiguration"

Document = dict[str, Any]


def read_manifest(*kinds: str) -> list[Document]:
    """The objects of these kinds in deploy/guard.yaml."""
    found = yaml.safe_load_all(MANIFEST.read_text())
    return [document for document in found if document["kind"] in kinds]


def build_webhook(port: int) -> Document:
    """The webhook configuration, for guards at a port of this machine."""
    (configuration,) = read_manifest(_WEBHOOK)
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
    return configuration


def install_guard(plane: ControlPlane, port: int) -> None:
    """Create the rights of guards, and register their webhook."""
    kubectl = plane.build_kubectl("kube-system")
    kubectl("create", "-f", "-", given=[*read_manifest(*_RIGHTS), build_webhook(port)])


def start_guard(plane: ControlPlane, port: int = 0, name: str = "guard", *flags: str) -> Program:
    """Start a guard with the rights of its service account, and nothing more."""
    arguments = [sys.executable, "-m", "dray", "guard", "--name", "127.0.0.1"]
    arguments += ["--kubeconfig", str(plane.write_kubeconfig(USER)), "--identity", name]
    arguments += ["--listen", f"127.0.0.1:{port or free_port()}", "--log-format", "json"]
    return plane.add_command([*arguments, *flags], name, {"PYTHONPATH": str(SOURCE)})
