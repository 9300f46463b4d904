"""What schemas are called: the names that Kubernetes gives them, which tools show and generators use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
CORE: Final = "io.k8s.api.core.v1"
QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_SHARED_PACKAGES: Mapping[str, str] = MappingProxyType(
    {"dray.api.meta": META, "dray.api.admission.label_selector": META, "dray.values.node_selectors": CORE}
)
"""Structs of these modules are the same in every group."""

_RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "ClassicClaim": "ResourceClaim",
        "ClassicClaimSpec": "ResourceClaimSpec",
        "ClassicClaimStatus": "ResourceClaimStatus",
        "ConsumerReference": "ResourceClaimConsumerReference",
        "OwnerRef": "OwnerReference",
    }
)
_OLDER_SUFFIX: Final = "V1beta1"


def get_package(group: str, version: str) -> str:
    """Where the schemas of a group and version are: `io.k8s.api.resource.v1`."""
    if not group:
        return f"io.k8s.api.core.{version}"
    if group.endswith(".k8s.io") or "." not in group:
        return f"io.k8s.api.{group.partition('.')[0]}.{version}"
    return ".".join([*reversed(group.split(".")), version])


def build_struct_name(struct_type: type, home: str) -> str:
    """What the schema of a struct is called, as used in a package."""
    name = struct_type.__name__.removesuffix(_OLDER_SUFFIX)
    return f"{_SHARED_PACKAGES.get(struct_type.__module__, home)}.{_RENAMED.get(name, name)}"


def build_reference(name: str) -> str:
    return f"#/components/schemas/{name}"
