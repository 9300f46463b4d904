"""Reads objects of a running cluster as the server sends them: documents, in the version it serves.

Rules for this file: fields are neither converted nor dropped, except for `managedFields`, which no person
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dray.api.core import Pod
from dray.api.kinds import Kind
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dray.client.client import DEFAULT_PAGE_SIZE, Client
from dray.client.object_refs import Document, build_path, resolve_kind
from dray.cluster.live.access import (
    AccessGap,
    ReadableObjects,
    describe_gaps,
    describe_unserved,
    find_served_versions,
    list_readable,
)

_DOCUMENT_TYPES = (DeviceClass, ResourceSlice, ResourceClaim, ResourceClaimTemplate, Pod)


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """An object of a server, and where it stands there."""

    name: str
    """Resource, namespace and name: `resourceclaims/ml/train`."""
    document: Document


@dataclass(frozen=True, slots=True)
class LiveDocuments:
    """The objects around devices of a server, and what could not be read."""

    documents: tuple[LiveDocument, ...]
    gaps: tuple[AccessGap, ...] = ()
    remarks: tuple[str, ...] = ()


async def read_device_documents(client: Client, namespaces: Sequence[str] = ()) -> LiveDocuments:
    """Read classes, slices, claims, templates, and the pods with claims.

    Claims that were generated for a pod are left out: they are copies of a template.
    """
    kinds = [resolve_kind(kind) for kind in _DOCUMENT_TYPES]
    listed: list[ReadableObjects] = await asyncio.gather(
        *(_list_documents(client, kind, namespaces) for kind in kinds)
    )
    found = [
        LiveDocument(_format_place(kind, document), document)
        for kind, readable in zip(kinds, listed, strict=True)
        for document in readable.items
        if isinstance(document, dict) and _is_written_by_people(kind, document)
    ]
    gaps = tuple(readable.gap for readable in listed if readable.gap is not None)
    remarks = describe_gaps(gaps)
    if not listed[kinds.index(resolve_kind(ResourceSlice))].is_served:
        unserved = describe_unserved(resolve_kind(ResourceSlice), await find_served_versions(client))
        remarks = (unserved, *remarks)
    return LiveDocuments(tuple(found), gaps, remarks)


async def _list_documents(client: Client, kind: Kind, namespaces: Sequence[str]) -> ReadableObjects:
    async def list_in(namespace: str) -> Sequence[object]:
        version = await client.get_served_version(kind)
        path = build_path(kind, version, namespace)
        items: list[object] = []
        query = {"limit": str(DEFAULT_PAGE_SIZE)}
        while True:
            page = await client.get_json(path, **query)
            items += [_complete_item(item, kind, version) for item in page.get("items") or ()]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            query["continue"] = token

    return await list_readable(client, kind, list_in, namespaces)


def _complete_item(item: Any, kind: Kind, version: str) -> Document:
    """Add what items of a list leave out, and drop what only servers write."""
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    return {
        "apiVersion": kind.format_api_version(version),
        "kind": kind.name,
        **item,
        "metadata": metadata,
    }


def _is_written_by_people(kind: Kind, document: Document) -> bool:
    if kind.name == "Pod":
        return bool(document.get("spec", {}).get("resourceClaims"))
    owners = document["metadata"].get("ownerReferences") or ()
    return kind.name != "ResourceClaim" or not any(owner.get("kind") == "Pod" for owner in owners)


def _format_place(kind: Kind, document: Document) -> str:
    metadata = document["metadata"]
    parts = [kind.plural, metadata.get("namespace", ""), metadata.get("name", "")]
    return "/".join(part for part in parts if part)
