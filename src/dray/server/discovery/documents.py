"""What there is to ask for: discovery in its two forms, and the version of the server.

Theory of operation: all documents are made once and kept as bytes with a tag of their contents; a client that
still has them is told so. The older form has a document for each group and version. The newer one, which
clients ask for with `Accept`, tells everything in the answers to `/api` and `/apis`. Clients that do not know
the newer form get the older one from the same paths, so these answers vary with `Accept`.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dray import __version__
from dray.api.json_text import write_json
from dray.api.kinds import KINDS, Kind
from dray.server.discovery.resources import Resource, by_group, resources_of
from dray.server.http.content_negotiation import DISCOVERY, DOCUMENTS, Form, Shape, negotiate
from dray.server.http.requests import Answer

MAJOR: Final = "1"
MINOR: Final = "37"
"""The version of Kubernetes whose behaviour clients may expect."""

_EVERYBODY: Final = "0.0.0.0/0"


def tag_of(body: bytes) -> str:
    """A tag that changes with the contents."""
    return hashlib.sha256(body).hexdigest().upper()


def unchanged(headers: Mapping[str, str], tag: str) -> bool:
    """Whether the client already has what bears this tag."""
    known = (
        part.strip().removeprefix("W/").strip('"') for part in headers.get("if-none-match", "").split(",")
    )
    return any(part in (tag, "*") for part in known)


def version_document() -> dict[str, str]:
    """What `/version` tells."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": str(int(MINOR) - 1),
        "gitVersion": f"v{MAJOR}.{MINOR}.0+dray-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{_machine()}",
    }


def _machine() -> str:
    """The processor, in the words Kubernetes uses."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True, slots=True)
class _Page:
    body: bytes
    tag: str


class Discovery:
    """The answers of discovery for a table of kinds."""

    def __init__(self, kinds: Sequence[Kind] = KINDS, address: str = "") -> None:
        self.resources: Mapping[tuple[str, str], tuple[Resource, ...]] = resources_of(kinds)
        documents = dict(_older(self.resources, address))
        self._pages = {(path, ""): _page(document) for path, document in documents.items()}
        for version in ("v2", "v2beta1"):
            for path, document in _newer(self.resources, version):
                self._pages[path, version] = _page(document)

    def answer(self, path: str, accept: str, headers: Mapping[str, str]) -> Answer | None:
        """The answer for a path of discovery; None when it is none. Slashes at the end do not matter."""
        place = path.rstrip("/")
        if (place, "") not in self._pages:
            return None
        both = (place, "v2") in self._pages
        form = negotiate(accept, DISCOVERY if both else DOCUMENTS)
        page = self._pages[place, form.version]
        extra = [("etag", f'"{page.tag}"'), ("vary", "Accept"), ("cache-control", _kept(form))]
        if unchanged(headers, page.tag):
            return Answer(304, b"", form.content_type, extra)
        return Answer(200, form.write(page.body), form.content_type, extra)


def _page(document: Mapping[str, Any]) -> _Page:
    body = write_json(document)
    return _Page(body, tag_of(body))


def _kept(form: Form) -> str:
    return "public" if form.shape is Shape.DISCOVERY else "no-cache, private"


_Table = Mapping[tuple[str, str], tuple[Resource, ...]]


def _older(table: _Table, address: str) -> Iterator[tuple[str, dict[str, Any]]]:
    groups = [_group(group, versions) for group, versions in by_group(table).items() if group]
    yield "/version", version_document()
    yield (
        "/api",
        {
            "kind": "APIVersions",
            "versions": list(by_group(table).get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": _EVERYBODY, "serverAddress": address}],
        },
    )
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for group in groups:
        yield f"/apis/{group['name']}", {"kind": "APIGroup", "apiVersion": "v1", **group}
    for (name, version), resources in table.items():
        whole = f"{name}/{version}" if name else version
        yield (
            f"/apis/{whole}" if name else f"/api/{whole}",
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": whole,
                "resources": [_older_row(resource) for resource in resources],
            },
        )


def _group(name: str, versions: Sequence[str]) -> dict[str, Any]:
    each = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": each, "preferredVersion": each[0]}


def _older_row(resource: Resource) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": resource.name,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
    }
    if resource.foreign is not None:
        row["group"], row["version"] = resource.foreign
    row |= {"kind": resource.about[2], "verbs": list(resource.verbs)}
    return row | _names(resource) | _storage_hash(resource)


def _storage_hash(resource: Resource) -> dict[str, str]:
    """Alike for all names under which the same objects are kept; clients compare it and nothing else."""
    kind = resource.kind
    if kind is None or resource.subresource:
        return {}
    group, name = kind.kept_as or (kind.group, kind.name)
    return {"storageVersionHash": tag_of(f"{group}/{name}".encode())[:12]}


def _names(resource: Resource) -> dict[str, list[str]]:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {field: value for field, value in names.items() if value}


def _newer(table: _Table, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, wanted in (("/api", lambda group: not group), ("/apis", bool)):
        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": served,
                        "resources": list(_newer_rows(table[group, served])),
                        "freshness": "Current",
                    }
                    for served in versions
                ],
            }
            for group, versions in by_group(table).items()
            if wanted(group)
        ]
        yield (
            path,
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": items,
            },
        )


def _newer_rows(resources: Sequence[Resource]) -> Iterator[dict[str, Any]]:
    """Resources with their subresources inside; the rows are sorted, so these follow their resource."""
    row: dict[str, Any] | None = None
    for resource in resources:
        if resource.subresource and row is not None:
            row.setdefault("subresources", []).append(
                {
                    "subresource": resource.subresource,
                    "responseKind": _response(resource),
                    "verbs": list(resource.verbs),
                }
            )
            continue
        if row is not None:
            yield row
        row = {
            "resource": resource.name,
            "responseKind": _response(resource),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
            **_names(resource),
        }
    if row is not None:
        yield row


def _response(resource: Resource) -> dict[str, str]:
    """Kind of the answers; group and version only where they differ from the resource's own."""
    group, version = resource.foreign or ("", "")
    return {"group": group, "version": version, "kind": resource.about[2]}
