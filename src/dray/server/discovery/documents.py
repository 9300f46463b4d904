"""Discovery documents, legacy and aggregated, and the version of the server.

Theory of operation: all documents are encoded once, with an etag; a client that has the current document gets
304. Legacy discovery has a document for each group and version. Aggregated discovery, which clients request
with `Accept`, has everything in the answers to `/api` and `/apis`. Clients that do not support it get the
legacy documents at the same paths, so these answers vary with `Accept`.
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
from dray.server.discovery.resources import ApiResource, group_versions, list_resources
from dray.server.http.content_negotiation import (
    DISCOVERY_FORMATS,
    DOCUMENT_FORMATS,
    Representation,
    ResponseFormat,
    negotiate,
)
from dray.server.http.requests import ApiResponse

MAJOR: Final = "1"
MINOR: Final = "37"
"""The version of Kubernetes whose behaviour clients may expect."""

_ANY_CLIENT_CIDR: Final = "0.0.0.0/0"


def compute_etag(body: bytes) -> str:
    """The etag of a body."""
    return hashlib.sha256(body).hexdigest().upper()


def matches_etag(headers: Mapping[str, str], etag: str) -> bool:
    """Whether the client has the document with this etag already."""
    known = (
        part.strip().removeprefix("W/").strip('"') for part in headers.get("if-none-match", "").split(",")
    )
    return any(part in (etag, "*") for part in known)


def build_version_document() -> dict[str, str]:
    """The document of `/version`."""
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
        "platform": f"{platform.system().lower()}/{_get_architecture()}",
    }


def _get_architecture() -> str:
    """The architecture of the processor, as Kubernetes names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True, slots=True)
class _EncodedDocument:
    body: bytes
    etag: str


class DiscoveryEndpoints:
    """Answers the paths of discovery for the served kinds."""

    def __init__(
        self, kinds: Sequence[Kind] = KINDS, address: str = "", *, transactions: bool = False
    ) -> None:
        self.resources: Mapping[tuple[str, str], tuple[ApiResource, ...]] = list_resources(
            kinds, transactions=transactions
        )
        documents = dict(_build_legacy_documents(self.resources, address))
        self._documents = {(path, ""): _encode_document(document) for path, document in documents.items()}
        for version in ("v2", "v2beta1"):
            for path, document in _build_aggregated_documents(self.resources, version):
                self._documents[path, version] = _encode_document(document)

    def answer(self, path: str, accept: str, headers: Mapping[str, str]) -> ApiResponse | None:
        """Answer a path of discovery; None for other paths. Trailing slashes do not matter."""
        path = path.rstrip("/")
        if (path, "") not in self._documents:
            return None
        aggregated = (path, "v2") in self._documents
        form = negotiate(accept, DISCOVERY_FORMATS if aggregated else DOCUMENT_FORMATS)
        document = self._documents[path, form.version]
        extra = [
            ("etag", f'"{document.etag}"'),
            ("vary", "Accept"),
            ("cache-control", _get_cache_control(form)),
        ]
        if matches_etag(headers, document.etag):
            return ApiResponse(304, b"", form.content_type, extra)
        return ApiResponse(200, form.encode(document.body), form.content_type, extra)


def _encode_document(document: Mapping[str, Any]) -> _EncodedDocument:
    body = write_json(document)
    return _EncodedDocument(body, compute_etag(body))


def _get_cache_control(response_format: ResponseFormat) -> str:
    return "public" if response_format.representation is Representation.DISCOVERY else "no-cache, private"


_Table = Mapping[tuple[str, str], tuple[ApiResource, ...]]


def _build_legacy_documents(table: _Table, address: str) -> Iterator[tuple[str, dict[str, Any]]]:
    groups = [_build_group(group, versions) for group, versions in group_versions(table).items() if group]
    yield "/version", build_version_document()
    yield (
        "/api",
        {
            "kind": "APIVersions",
            "versions": list(group_versions(table).get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": _ANY_CLIENT_CIDR, "serverAddress": address}],
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
                "resources": [_build_legacy_row(resource) for resource in resources],
            },
        )


def _build_group(name: str, versions: Sequence[str]) -> dict[str, Any]:
    each = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": each, "preferredVersion": each[0]}


def _build_legacy_row(resource: ApiResource) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": resource.name,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
    }
    if resource.foreign_group_version is not None:
        row["group"], row["version"] = resource.foreign_group_version
    row |= {"kind": resource.group_version_kind[2], "verbs": list(resource.verbs)}
    return row | _collect_names(resource) | _build_storage_hash(resource)


def _build_storage_hash(resource: ApiResource) -> dict[str, str]:
    """The storage version hash: the same for all aliases of a stored kind; clients only compare it."""
    kind = resource.kind
    if kind is None or resource.subresource:
        return {}
    group, name = kind.stored_as or (kind.group, kind.name)
    return {"storageVersionHash": compute_etag(f"{group}/{name}".encode())[:12]}


def _collect_names(resource: ApiResource) -> dict[str, list[str]]:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {field: value for field, value in names.items() if value}


def _build_aggregated_documents(table: _Table, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, wanted in (("/api", lambda group: not group), ("/apis", bool)):
        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": served,
                        "resources": list(_build_aggregated_rows(table[group, served])),
                        "freshness": "Current",
                    }
                    for served in versions
                ],
            }
            for group, versions in group_versions(table).items()
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


def _build_aggregated_rows(resources: Sequence[ApiResource]) -> Iterator[dict[str, Any]]:
    """Resources with their subresources; the rows are sorted, so subresources follow their resource."""
    row: dict[str, Any] | None = None
    for resource in resources:
        if resource.subresource and row is not None:
            row.setdefault("subresources", []).append(
                {
                    "subresource": resource.subresource,
                    "responseKind": _build_response_kind(resource),
                    "verbs": list(resource.verbs),
                }
            )
            continue
        if row is not None:
            yield row
        row = {
            "resource": resource.name,
            "responseKind": _build_response_kind(resource),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
            **_collect_names(resource),
        }
    if row is not None:
        yield row


def _build_response_kind(resource: ApiResource) -> dict[str, str]:
    """The kind of responses; group and version only where they differ from those of the resource."""
    group, version = resource.foreign_group_version or ("", "")
    return {"group": group, "version": version, "kind": resource.group_version_kind[2]}
