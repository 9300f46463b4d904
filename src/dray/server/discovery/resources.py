"""Every resource the server answers for: the table of kinds as clients see it, and what is only asked.

Theory of operation: discovery and OpenAPI tell the same story in different forms, so both are printed from
these rows. A kind makes a row for each version, followed by its subresources; reviews and bindings are
created and never kept, and have rows of their own here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dray.api.kinds import Kind

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CHANGES: Final = ("get", "patch", "update")
_CREATE: Final = ("create",)

_SUBRESOURCES: Mapping[str, tuple[tuple[str, ...], tuple[str, str, str] | None]] = MappingProxyType(
    {
        "status": (_CHANGES, None),
        "finalize": (("update",), None),
        "binding": (_CREATE, ("", "v1", "Binding")),
        "eviction": (_CREATE, ("policy", "v1", "Eviction")),
        "log": (("get",), None),
        "token": (_CREATE, ("authentication.k8s.io", "v1", "TokenRequest")),
    }
)
"""Verbs of each subresource, and what is sent to it when that is not the object itself."""

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
"""Words that stand for several resources, such as `kubectl get all`, and which those are in each group."""

WITHOUT: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {("", "namespaces"): frozenset({"deletecollection"})}
)
"""Verbs that a kind does not have."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of discovery. `name` is `pods` or `pods/status`; `about` is what is sent and comes back."""

    group: str
    version: str
    name: str
    singular: str
    namespaced: bool
    about: tuple[str, str, str]
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
    def foreign(self) -> tuple[str, str] | None:
        """Group and version of what it is about, when those are not its own."""
        own = (self.group, self.version)
        return None if self.about[:2] == own else self.about[:2]


def _asked(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    """The row of something that is asked, answered and forgotten."""
    name = kind.lower()
    return Resource(group, "v1", f"{name}s", name, namespaced, (group, "v1", kind), _CREATE)


ASKED: Final = (
    _asked("", "Binding", namespaced=True),
    _asked("authentication.k8s.io", "SelfSubjectReview"),
    _asked("authentication.k8s.io", "TokenReview"),
    _asked("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _asked("authorization.k8s.io", "SelfSubjectAccessReview"),
    _asked("authorization.k8s.io", "SelfSubjectRulesReview"),
    _asked("authorization.k8s.io", "SubjectAccessReview"),
)
"""Resources outside the table of kinds."""


def resources_of(kinds: Iterable[Kind]) -> dict[tuple[str, str], tuple[Resource, ...]]:
    """Every resource by group and version: groups as they come, the best version of each first."""
    found: dict[tuple[str, str], list[Resource]] = {}
    for row in (*(row for kind in kinds for row in _rows(kind)), *ASKED):
        found.setdefault((row.group, row.version), []).append(row)
    groups = list(dict.fromkeys(group for group, _ in found))
    places = sorted(found, key=lambda place: (groups.index(place[0]), _age(place[1])))
    return {place: tuple(sorted(found[place], key=lambda row: row.name)) for place in places}


def by_group(places: Iterable[tuple[str, str]]) -> dict[str, Sequence[str]]:
    """The versions of each group."""
    found: dict[str, list[str]] = {}
    for group, version in places:
        found.setdefault(group, []).append(version)
    return dict(found)


def _rows(kind: Kind) -> Iterator[Resource]:
    place = (kind.group, kind.plural)
    verbs = tuple(verb for verb in ALL_VERBS if verb not in WITHOUT.get(place, ()))
    for version in kind.versions:
        itself = (kind.group, version, kind.name)
        yield Resource(
            kind.group,
            version,
            kind.plural,
            kind.name.lower(),
            kind.namespaced,
            itself,
            verbs,
            kind.short_names,
            _categories(kind),
            kind,
        )
        for name in kind.subresources:
            sub_verbs, other = _SUBRESOURCES[name]
            yield Resource(
                kind.group,
                version,
                f"{kind.plural}/{name}",
                "",
                kind.namespaced,
                other or itself,
                sub_verbs,
                kind=kind,
            )


def _categories(kind: Kind) -> tuple[str, ...]:
    category, plurals = _CATEGORIES.get(kind.group, ("", ()))
    return (category,) if kind.plural in plurals else ()


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _age(version: str) -> tuple[int, int, int]:
    """Stable versions before beta before alpha, newer before older."""
    parts = _VERSION.fullmatch(version)
    assert parts is not None, version
    major, stage, minor = parts.groups()
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0)
