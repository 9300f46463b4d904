"""The table of served resources, from which discovery and OpenAPI are built.

Theory of operation: each kind has a row for each version, followed by its subresources. Reviews and bindings
are created and never stored; they are not in the table of kinds and have rows of their own here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dray.api.kinds import Kind
from dray.api.transactions import GROUP, KIND, VERSION
from dray.server.http.requests import REVIEW_KINDS, TRANSACTIONS

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_UPDATE_VERBS: Final = ("get", "patch", "update")
_CREATE_VERBS: Final = ("create",)

_SUBRESOURCES: Mapping[str, tuple[tuple[str, ...], tuple[str, str, str] | None]] = MappingProxyType(
    {
        "status": (_UPDATE_VERBS, None),
        "finalize": (("update",), None),
        "binding": (_CREATE_VERBS, ("", "v1", "Binding")),
        "eviction": (_CREATE_VERBS, ("policy", "v1", "Eviction")),
        "ephemeralcontainers": (_UPDATE_VERBS, None),
        "log": (("get",), None),
        "resize": (_UPDATE_VERBS, None),
        "token": (_CREATE_VERBS, ("authentication.k8s.io", "v1", "TokenRequest")),
    }
)
"""The verbs of each subresource, and the kind of its body when that is not the object itself."""

_CATEGORIES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "": ("all", ("pods", "replicationcontrollers", "services")),
        "apps": ("all", ("daemonsets", "deployments", "replicasets", "statefulsets")),
        "autoscaling": ("all", ("horizontalpodautoscalers",)),
        "batch": ("all", ("cronjobs", "jobs")),
        "admissionregistration.k8s.io": (
            "api-extensions",
            (
                "mutatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "validatingwebhookconfigurations",
            ),
        ),
        "apiextensions.k8s.io": ("api-extensions", ("customresourcedefinitions",)),
        "apiregistration.k8s.io": ("api-extensions", ("apiservices",)),
    }
)
"""The category of resources by group, as in `kubectl get all`, and the plurals that belong to it."""

UNSUPPORTED_VERBS: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {("", "namespaces"): frozenset({"deletecollection"})}
)
"""Verbs that a kind does not support."""


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One row of discovery. `name` is `pods` or `pods/status`; `group_version_kind` is the kind of bodies."""

    group: str
    version: str
    name: str
    singular: str
    namespaced: bool
    group_version_kind: tuple[str, str, str]
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kind: Kind | None = None

    @property
    def plural(self) -> str:
        return self.name.partition("/")[0]

    @property
    def subresource(self) -> str:
        return self.name.partition("/")[2]

    @property
    def foreign_group_version(self) -> tuple[str, str] | None:
        """Group and version of the kind of bodies, when they differ from those of the resource."""
        own = (self.group, self.version)
        return None if self.group_version_kind[:2] == own else self.group_version_kind[:2]


def _build_virtual_resource(group: str, kind: str, *, namespaced: bool = False) -> ApiResource:
    """The row of a resource that is created and not stored."""
    name = kind.lower()
    return ApiResource(group, "v1", f"{name}s", name, namespaced, (group, "v1", kind), _CREATE_VERBS)


VIRTUAL_RESOURCES: Final = (
    _build_virtual_resource("", "Binding", namespaced=True),
    *(
        _build_virtual_resource(group, kind, namespaced=namespaced)
        for (group, _), (kind, namespaced) in REVIEW_KINDS.items()
    ),
)
"""Resources outside the table of kinds."""


_TRANSACTION_KIND: Final = (GROUP, VERSION, KIND)
TRANSACTION_RESOURCE: Final = ApiResource(
    *TRANSACTIONS, KIND.lower(), False, _TRANSACTION_KIND, _CREATE_VERBS
)
"""The resource of servers whose store commits several writes together."""


def list_resources(
    kinds: Iterable[Kind], *, transactions: bool = False
) -> dict[tuple[str, str], tuple[ApiResource, ...]]:
    """Every resource by group and version: groups in the order of the kinds, the best version first."""
    found: dict[tuple[str, str], list[ApiResource]] = {}
    virtual = (*VIRTUAL_RESOURCES, TRANSACTION_RESOURCE) if transactions else VIRTUAL_RESOURCES
    for row in (*(row for kind in kinds for row in _build_rows(kind)), *virtual):
        found.setdefault((row.group, row.version), []).append(row)
    groups = list(dict.fromkeys(group for group, _ in found))
    ordered = sorted(found, key=lambda each: (groups.index(each[0]), _rank_version(each[1])))
    return {each: tuple(sorted(found[each], key=lambda row: row.name)) for each in ordered}


def group_versions(pairs: Iterable[tuple[str, str]]) -> dict[str, Sequence[str]]:
    """The versions of each group."""
    found: dict[str, list[str]] = {}
    for group, version in pairs:
        found.setdefault(group, []).append(version)
    return dict(found)


def _build_rows(kind: Kind) -> Iterator[ApiResource]:
    unsupported = UNSUPPORTED_VERBS.get((kind.group, kind.plural), ())
    verbs = tuple(verb for verb in ALL_VERBS if verb not in unsupported)
    for version in kind.versions:
        own_kind = (kind.group, version, kind.name)
        yield ApiResource(
            kind.group,
            version,
            kind.plural,
            kind.name.lower(),
            kind.namespaced,
            own_kind,
            verbs,
            kind.short_names,
            _get_categories(kind),
            kind,
        )
        for name in kind.subresources:
            sub_verbs, body_kind = _SUBRESOURCES[name]
            yield ApiResource(
                kind.group,
                version,
                f"{kind.plural}/{name}",
                "",
                kind.namespaced,
                body_kind or own_kind,
                sub_verbs,
                kind=kind,
            )


def _get_categories(kind: Kind) -> tuple[str, ...]:
    category, plurals = _CATEGORIES.get(kind.group, ("", ()))
    return (category,) if kind.plural in plurals else ()


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _rank_version(version: str) -> tuple[int, int, int]:
    """Stable versions before beta before alpha, newer before older."""
    parts = _VERSION.fullmatch(version)
    assert parts is not None, version
    major, stage, minor = parts.groups()
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0)
