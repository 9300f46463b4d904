"""The table of kinds: group, kind, plural, scope, versions, subresources.

Theory of operation: a new kind of object is a row in this table and a struct; codec, defaults, gates, rules
and tools find it through this table. The first version of a row is the internal version, which is also
stored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api import admission, classic, core, opaque_kinds, resource
from dray.api.preparation import Preparation
from dray.errors import DecodeError


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of object as the API serves it: one row of the table, equal to no other."""

    group: str
    name: str
    plural: str
    type: type[msgspec.Struct]
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = True
    open: bool = False
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    stored_as: tuple[str, str] | None = None
    """Group and kind under which the same objects are stored, when this kind is another name for them."""

    @property
    def version(self) -> str:
        """The internal version: every object is converted to it, and stored in it."""
        return self.versions[0]

    @property
    def internal_api_version(self) -> str:
        """`apiVersion` of the internal form."""
        return self.format_api_version(self.version)

    @property
    def is_opaque(self) -> bool:
        """Whether objects of this kind are stored whole and never interpreted."""
        return issubclass(self.type, core.OpaqueObject | core.OpaqueClusterObject)

    def format_api_version(self, version: str) -> str:
        """Return the `apiVersion` as objects have it: `group/version`, or the version in the core group."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def qualified_name(self) -> str:
        """`ResourceClaim.resource.k8s.io`, as error messages name a kind."""
        return f"{self.name}.{self.group}" if self.group else self.name


_DEVICES = "resource.k8s.io"
_CLASSIC = "cdi.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_DRAY = "dray.dev"
_ALL = ("v1", "v1beta2", "v1beta1")
_ALPHA = ("v1alpha1",)


def _build_opaque_kind(
    row: opaque_kinds.OpaqueKind, projection: type[msgspec.Struct], *, namespaced: bool
) -> Kind:
    """Build the row of a kind whose objects are stored and not interpreted."""
    return Kind(
        row.group,
        row.name,
        row.plural,
        projection,
        (row.version,),
        namespaced=namespaced,
        open=True,
        subresources=("status",) if row.has_status else (),
        short_names=row.short_names,
    )


KINDS: tuple[Kind, ...] = (
    Kind(_DEVICES, "DeviceClass", "deviceclasses", resource.DeviceClass, _ALL, namespaced=False),
    Kind(_DEVICES, "ResourceClaim", "resourceclaims", resource.ResourceClaim, _ALL, subresources=("status",)),
    Kind(_DEVICES, "ResourceClaimTemplate", "resourceclaimtemplates", resource.ResourceClaimTemplate, _ALL),
    Kind(_DEVICES, "ResourceSlice", "resourceslices", resource.ResourceSlice, _ALL, namespaced=False),
    Kind(
        _DEVICES,
        "DeviceTaintRule",
        "devicetaintrules",
        resource.DeviceTaintRule,
        ("v1", "v1beta2"),
        namespaced=False,
        subresources=("status",),
    ),
    Kind(_CLASSIC, "ResourceClass", "resourceclasses", classic.ResourceClass, _ALPHA, namespaced=False),
    Kind(
        _CLASSIC,
        "ResourceClaim",
        "resourceclaims",
        classic.ClassicResourceClaim,
        _ALPHA,
        subresources=("status",),
    ),
    Kind(
        "",
        "Pod",
        "pods",
        core.Pod,
        open=True,
        subresources=("status", "binding", "ephemeralcontainers", "eviction", "log", "resize"),
        short_names=("po",),
    ),
    Kind(
        "",
        "Node",
        "nodes",
        core.Node,
        namespaced=False,
        open=True,
        subresources=("status",),
        short_names=("no",),
    ),
    Kind(
        "",
        "Namespace",
        "namespaces",
        core.Namespace,
        namespaced=False,
        open=True,
        subresources=("status", "finalize"),
        short_names=("ns",),
    ),
    Kind("", "Event", "events", core.Event, open=True, short_names=("ev",)),
    Kind(
        "events.k8s.io",
        "Event",
        "events",
        core.Event,
        open=True,
        short_names=("ev",),
        stored_as=("", "Event"),
    ),
    Kind(
        "",
        "ResourceQuota",
        "resourcequotas",
        core.ResourceQuota,
        open=True,
        subresources=("status",),
        short_names=("quota",),
    ),
    Kind("coordination.k8s.io", "Lease", "leases", core.Lease, open=True),
    Kind("", "ConfigMap", "configmaps", core.OpaqueObject, open=True, short_names=("cm",)),
    Kind("", "Secret", "secrets", core.OpaqueObject, open=True),
    Kind(
        "",
        "ServiceAccount",
        "serviceaccounts",
        core.OpaqueObject,
        open=True,
        subresources=("token",),
        short_names=("sa",),
    ),
    Kind(_RBAC, "Role", "roles", core.RbacObject, open=True),
    Kind(_RBAC, "RoleBinding", "rolebindings", core.RbacObject, open=True),
    Kind(_RBAC, "ClusterRole", "clusterroles", core.RbacClusterObject, open=True, namespaced=False),
    Kind(
        _RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        core.RbacClusterObject,
        open=True,
        namespaced=False,
    ),
    Kind(
        _ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        admission.MutatingWebhookConfiguration,
        namespaced=False,
    ),
    Kind(
        _ADMISSION,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        admission.ValidatingWebhookConfiguration,
        namespaced=False,
    ),
    Kind(_DRAY, "Preparation", "preparations", Preparation, _ALPHA, namespaced=False),
    *(_build_opaque_kind(row, core.OpaqueObject, namespaced=True) for row in opaque_kinds.NAMESPACED_KINDS),
    *(
        _build_opaque_kind(row, core.OpaqueClusterObject, namespaced=False)
        for row in opaque_kinds.CLUSTER_KINDS
    ),
    *(
        _build_opaque_kind(row, core.PathNamedClusterObject, namespaced=False)
        for row in opaque_kinds.PATH_NAMED_KINDS
    ),
)

_BY_NAME: Mapping[tuple[str, str], Kind] = MappingProxyType({(kind.group, kind.name): kind for kind in KINDS})

_BY_TYPE: Mapping[type, Kind] = MappingProxyType({kind.type: kind for kind in KINDS if not kind.open})


def get_kind_by_type(cls: type) -> Kind:
    """Return the row of a closed kind's struct; open objects are documents and have none."""
    try:
        return _BY_TYPE[cls]
    except KeyError:
        raise TypeError(
            f"{cls.__name__} is not a closed kind; open objects are changed as documents"
        ) from None


_BY_PROJECTION: Mapping[type, Kind] = MappingProxyType(
    {kind.type: kind for kind in KINDS if kind.open and [row.type for row in KINDS].count(kind.type) == 1}
)


def get_kind_by_projection(cls: type) -> Kind:
    """Return the row whose objects are decoded to this struct: a closed kind's struct, or an open kind's
    projection.
    """
    return _BY_PROJECTION.get(cls) or get_kind_by_type(cls)


def find_kind(group: str, name: str) -> Kind | None:
    """Return the row of a kind, or None when it is not served."""
    return _BY_NAME.get((group, name))


def get_kind(group: str, name: str) -> Kind:
    """Return the row of a kind that is certainly in the table."""
    return _BY_NAME[group, name]


def split_api_version(api_version: str) -> tuple[str, str]:
    """Split `resource.k8s.io/v1` into group and version; `v1` is of the core group."""
    group, slash, version = api_version.rpartition("/")
    return (group, version) if slash else ("", api_version)


class UnknownKindError(DecodeError):
    """A document of a kind or version that is not served: what is wrong, and a hint (may be empty)."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


def parse_document_kind(document: Mapping[str, Any]) -> tuple[Kind, str]:
    """Return the kind and version of a document; raises `UnknownKindError` when it is not served."""
    api_version, name = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not api_version:
        raise UnknownKindError("`apiVersion` is missing", "expected for example `resource.k8s.io/v1`")
    if not isinstance(name, str) or not name:
        raise UnknownKindError("`kind` is missing", "expected for example `ResourceClaim`")
    group, version = split_api_version(api_version)
    kind = find_kind(group, name)
    if kind is None:
        hint = _suggest_kind(group, name)
        raise UnknownKindError(f"unknown kind `{name}` in `{api_version}`", hint)
    if version not in kind.versions:
        served = ", ".join(f"`{kind.format_api_version(v)}`" for v in kind.versions)
        raise UnknownKindError(f"{name} is not served in `{api_version}`", f"expected one of {served}")
    return kind, version


def _suggest_kind(group: str, name: str) -> str:
    elsewhere = [kind.internal_api_version for kind in KINDS if kind.name == name]
    if elsewhere:
        return f"`{name}` is served in {' and '.join(f'`{v}`' for v in elsewhere)}"
    same_group = [kind.name for kind in KINDS if kind.group == group]
    near = difflib.get_close_matches(name, same_group or [kind.name for kind in KINDS], n=1)
    return f"did you mean `{near[0]}`?" if near else ""
