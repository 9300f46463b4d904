"""Names of schemas, as Kubernetes publishes them; clients show them and code generators use them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dray.api import meta
from dray.api.admission import label_selector
from dray.api.classic.resource_claim import ClassicClaimSpec, ClassicClaimStatus
from dray.api.preparation import PreparationDevice
from dray.api.resource.allocation import ConsumerReference
from dray.values import node_selectors

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
CORE: Final = "io.k8s.api.core.v1"
QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_SHARED_PACKAGES: Mapping[str, str] = MappingProxyType(
    {meta.__name__: META, label_selector.__name__: META, node_selectors.__name__: CORE}
)
"""Modules whose structs have one schema for all groups."""

_RENAMED: Mapping[str, str] = MappingProxyType(
    {
        struct.__name__: published
        for struct, published in (
            (ClassicClaimSpec, "ResourceClaimSpec"),
            (ClassicClaimStatus, "ResourceClaimStatus"),
            (ConsumerReference, "ResourceClaimConsumerReference"),
            (PreparationDevice, "DeviceInHand"),
            (meta.OwnerRef, "OwnerReference"),
        )
    }
)
"""Structs whose schema has another name than the class. Published names never change."""

_OLDER_SUFFIX: Final = "V1beta1"


def get_package(group: str, version: str) -> str:
    """Return the package of the schemas of a group and version, such as `io.k8s.api.resource.v1`."""
    if not group:
        return f"io.k8s.api.core.{version}"
    if group.endswith(".k8s.io") or "." not in group:
        return f"io.k8s.api.{group.partition('.')[0]}.{version}"
    return ".".join([*reversed(group.split(".")), version])


def build_struct_name(struct_type: type, home: str) -> str:
    """Return the name of the schema of a struct; `home` is the package of the kind that contains it."""
    name = struct_type.__name__.removesuffix(_OLDER_SUFFIX)
    return f"{_SHARED_PACKAGES.get(struct_type.__module__, home)}.{_RENAMED.get(name, name)}"


def build_reference(name: str) -> str:
    return f"#/components/schemas/{name}"
