"""Responses with OpenAPI documents: an index, one document for each group and version, and version 2.

Theory of operation: a document is built on the first request and then cached. The index names each document
with a hash of its contents, so a client that requests it with the hash may cache the response for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind
from dray.server.discovery.documents import MAJOR, MINOR, compute_etag, matches_etag
from dray.server.discovery.resources import ApiResource, list_resources
from dray.server.http.content_negotiation import DOCUMENT_FORMATS, negotiate
from dray.server.http.requests import JSON, ApiResponse
from dray.server.openapi import swagger_v2
from dray.server.openapi.paths import build_paths
from dray.server.openapi.schemas import SHARED_SCHEMAS, SchemaBuilder

INDEX_PATH: Final = "/openapi/v3"
V2_PATH: Final = "/openapi/v2"
_CACHE_FOREVER: Final = "public, max-age=31536000, immutable"
_NO_CACHE: Final = "no-cache, private"

INFO: Final = {"title": "Kubernetes, as dray serves it", "version": f"{MAJOR}.{MINOR}"}


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    body: bytes
    tag: str
    media: str = JSON


class OpenApiDocuments:
    """Answers requests for OpenAPI documents."""

    def __init__(self, kinds: Sequence[Kind] = KINDS, *, transactions: bool = False) -> None:
        self._kinds = kinds
        self._transactions = transactions
        self._documents: dict[str, _CachedDocument] = {}

    @cached_property
    def _resources(self) -> Mapping[str, tuple[ApiResource, ...]]:
        """Resources by the path of their group and version, such as `apis/apps/v1`."""
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": rows
            for (group, version), rows in list_resources(self._kinds, transactions=self._transactions).items()
        }

    def answer(
        self, path: str, accept: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None
    ) -> ApiResponse | None:
        """Answer a path of OpenAPI; None for other paths."""
        place = path.rstrip("/")
        if place == V2_PATH:
            return self._answer_v2(accept, headers)
        if place != INDEX_PATH and place.removeprefix(f"{INDEX_PATH}/") not in self._resources:
            return None
        form = negotiate(accept, DOCUMENT_FORMATS)
        page = self._get_document(place)
        fixed = place != INDEX_PATH and (query or {}).get("hash") == page.tag
        extra = _build_headers(page, _CACHE_FOREVER if fixed else _NO_CACHE)
        if matches_etag(headers, page.tag):
            return ApiResponse(304, b"", form.content_type, extra)
        return ApiResponse(200, form.encode(page.body), form.content_type, extra)

    def _answer_v2(self, accept: str, headers: Mapping[str, str]) -> ApiResponse:
        asked_binary = any(mark in accept for mark in swagger_v2.BINARY_SUFFIXES)
        page = self._get_document(f"{V2_PATH} binary" if asked_binary else V2_PATH)
        extra = _build_headers(page, _NO_CACHE)
        if matches_etag(headers, page.tag):
            return ApiResponse(304, b"", page.media, extra)
        return ApiResponse(200, page.body, page.media, extra)

    def _get_document(self, place: str) -> _CachedDocument:
        if place not in self._documents:
            self._documents[place] = self._render_document(place)
        return self._documents[place]

    def _render_document(self, place: str) -> _CachedDocument:
        if place == INDEX_PATH:
            body = write_json(
                {"paths": {name: self._build_index_entry(name) for name in sorted(self._resources)}}
            )
        elif place == V2_PATH:
            documents = [
                read_json(self._get_document(f"{INDEX_PATH}/{name}").body) for name in sorted(self._resources)
            ]
            body = write_json(swagger_v2.build_v2_document(documents))
        elif place.startswith(V2_PATH):
            body = swagger_v2.encode_binary_skeleton(INFO["title"], INFO["version"])
            return _CachedDocument(body, compute_etag(body), swagger_v2.BINARY_TYPE)
        else:
            name = place.removeprefix(f"{INDEX_PATH}/")
            body = write_json(build_document(name, self._resources[name]))
        return _CachedDocument(body, compute_etag(body))

    def _build_index_entry(self, name: str) -> dict[str, str]:
        return {
            "serverRelativeURL": f"{INDEX_PATH}/{name}?hash={self._get_document(f'{INDEX_PATH}/{name}').tag}"
        }


def _build_headers(page: _CachedDocument, cache_control: str) -> list[tuple[str, str]]:
    return [("etag", f'"{page.tag}"'), ("vary", "Accept"), ("cache-control", cache_control)]


def build_document(place: str, resources: Sequence[ApiResource]) -> dict[str, Any]:
    """Build the document of one group and version."""
    schemas = SchemaBuilder(resources[0].group, resources[0].version)
    schemas.schemas |= SHARED_SCHEMAS
    names: dict[tuple[str, str, str], str] = {}
    for resource in resources:
        if resource.kind is not None and not resource.subresource:
            names[resource.group_version_kind] = schemas.add_kind(resource.kind)
    for resource in resources:
        if resource.group_version_kind not in names:
            names[resource.group_version_kind] = schemas.add_standalone(resource.group_version_kind)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": build_paths(f"/{place}", resources, names),
        "components": {
            "schemas": dict(sorted(schemas.schemas.items())),
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "description": "A token, as `Bearer TOKEN`.",
                    "name": "authorization",
                    "in": "header",
                }
            },
        },
    }
