"""Objects of a driver's deployment: their names, labels and metadata, from the driver and the target."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from dray.driver.base import ClassicDriver, Driver
from dray.errors import InputError
from dray.values.names import check_dns_label

Document = dict[str, Any]

KUBELET_DIR: Final = PurePosixPath("/var/lib/kubelet")
CDI_DIR: Final = PurePosixPath("/var/run/cdi")

RESOURCE_GROUP: Final = "resource.k8s.io"
RESOURCE_VERSIONS: Final = ["v1", "v1beta2", "v1beta1"]
CLASSIC_GROUP: Final = "cdi.k8s.io"
ADMISSION_VERSION: Final = "admissionregistration.k8s.io/v1"
_MAX_NAME_LENGTH: Final = 45


@dataclass(frozen=True)
class DeploymentTarget:
    """Where a driver is deployed."""

    image: str
    namespace: str = ""
    """The driver's own namespace; named after the driver when empty."""
    issues_certificate: bool = True
    """Whether the webhook issues its certificate itself; else the cluster puts it into the secret."""
    ca_bundle: str = ""
    """The authority of a certificate that the cluster issues, PEM in base64; its issuer fills it in when
    empty.
    """
    kubelet_dir: PurePosixPath = KUBELET_DIR
    """The kubelet's root directory on the nodes."""
    cdi_dir: PurePosixPath = CDI_DIR


def shorten_driver_name(name: str) -> str:
    """Return a DNS label that begins with a letter for a driver's name, as the base of object names."""
    slug = name.replace(".", "-")
    if len(slug) > _MAX_NAME_LENGTH or not re.match("[a-z]", slug) or "-" in name:
        digest = hashlib.sha256(name.encode()).hexdigest()[:6]
        slug = f"{slug[: _MAX_NAME_LENGTH - 10].rstrip('-')}-{digest}"
    return slug if re.match("[a-z]", slug) else f"dra-{slug}"


class DriverObjects:
    """Builds the metadata of a driver's objects."""

    def __init__(self, driver: Driver, target: DeploymentTarget) -> None:
        if check_dns_label(target.namespace):
            raise InputError(f"`{target.namespace}` is not the name of a namespace")
        for directory in (target.kubelet_dir, target.cdi_dir):
            if not directory.is_absolute() or ".." in directory.parts:
                raise InputError(f"`{directory}` is not the absolute path of a directory of the nodes")
        self.driver, self.target = driver.name, target
        self.is_classic = isinstance(driver, ClassicDriver)
        self.base_name = shorten_driver_name(driver.name)

    def format_name(self, part: str) -> str:
        return f"{self.base_name}-{part}"

    @property
    def webhook_configuration_name(self) -> str:
        return f"{self.base_name}-parameters"

    @property
    def webhook_secret_name(self) -> str:
        return self.format_name("webhook-tls")

    def build_labels(self, part: str) -> dict[str, str]:
        return {"app.kubernetes.io/name": self.base_name, "app.kubernetes.io/component": part}

    def build_object(
        self, kind: str, version: str, name: str, labels: Mapping[str, str] | None = None
    ) -> Document:
        metadata = {"name": name, "labels": {"app.kubernetes.io/name": self.base_name, **(labels or {})}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata}

    def build_namespaced_object(self, kind: str, version: str, part: str) -> Document:
        document = self.build_object(kind, version, self.format_name(part))
        document["metadata"]["namespace"] = self.target.namespace
        return document
