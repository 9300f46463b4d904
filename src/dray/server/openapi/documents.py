"""The OpenAPI documents as answers: an index, one document for each group and version, and the older form.

Theory of operation: nothing is made before somebody asks, and everything is made once. The index names each
document with a hash of its contents, so a client that asks with the hash may keep the answer for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind
from dray.server.discovery.documents import MAJOR, MINOR, tag_of, unchanged
from dray.server.discovery.resources import Resource, resources_of
from dray.server.http.content_negotiation import DOCUMENTS, JSON, negotiate
from dray.server.http.requests import Answer
from dray.server.openapi import swagger_v2
from dray.server.openapi.paths import paths_of
from dray.server.openapi.schemas import OPTIONS, Schemas

INDEX: Final = "/openapi/v3"
OLDER: Final = "/openapi/v2"
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache, private"

INFO: Final = {"title": "Kubernetes, as dray serves it", "version": f"{MAJOR}.{MINOR}"}


@dataclass(frozen=True, slots=True)
class _Page:
    body: bytes
    tag: str
    media: str = JSON


class OpenApi:
    """Answers with OpenAPI documents."""

    def __init__(self, kinds: Sequence[Kind] = KINDS) -> None:
        self._kinds = kinds
        self._pages: dict[str, _Page] = {}

    @cached_property
    def _resources(self) -> Mapping[str, tuple[Resource, ...]]:
        """Resources by the place of their group and version, such as `apis/apps/v1`."""
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": rows
            for (group, version), rows in resources_of(self._kinds).items()
        }

    def answer(
        self, path: str, accept: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None
    ) -> Answer | None:
        """The answer for a path of OpenAPI; None when it is none."""
        place = path.rstrip("/")
        if place == OLDER:
            return self._older(accept, headers)
        if place != INDEX and place.removeprefix(f"{INDEX}/") not in self._resources:
            return None
        form = negotiate(accept, DOCUMENTS)
        page = self._page(place)
        fixed = place != INDEX and (query or {}).get("hash") == page.tag
        extra = _headers(page, _FOR_EVER if fixed else _ASK_AGAIN)
        if unchanged(headers, page.tag):
            return Answer(304, b"", form.content_type, extra)
        return Answer(200, form.write(page.body), form.content_type, extra)

    def _older(self, accept: str, headers: Mapping[str, str]) -> Answer:
        asked_binary = any(mark in accept for mark in swagger_v2.BINARY)
        page = self._page(f"{OLDER} binary" if asked_binary else OLDER)
        extra = _headers(page, _ASK_AGAIN)
        if unchanged(headers, page.tag):
            return Answer(304, b"", page.media, extra)
        return Answer(200, page.body, page.media, extra)

    def _page(self, place: str) -> _Page:
        if place not in self._pages:
            self._pages[place] = self._made(place)
        return self._pages[place]

    def _made(self, place: str) -> _Page:
        if place == INDEX:
            body = write_json({"paths": {name: self._entry(name) for name in sorted(self._resources)}})
        elif place == OLDER:
            documents = [read_json(self._page(f"{INDEX}/{name}").body) for name in sorted(self._resources)]
            body = write_json(swagger_v2.document(documents))
        elif place.startswith(OLDER):
            body = swagger_v2.binary_skeleton(INFO["title"], INFO["version"])
            return _Page(body, tag_of(body), swagger_v2.BINARY_TYPE)
        else:
            name = place.removeprefix(f"{INDEX}/")
            body = write_json(document(name, self._resources[name]))
        return _Page(body, tag_of(body))

    def _entry(self, name: str) -> dict[str, str]:
        return {"serverRelativeURL": f"{INDEX}/{name}?hash={self._page(f'{INDEX}/{name}').tag}"}


def _headers(page: _Page, kept: str) -> list[tuple[str, str]]:
    return [("etag", f'"{page.tag}"'), ("vary", "Accept"), ("cache-control", kept)]


def document(place: str, resources: Sequence[Resource]) -> dict[str, Any]:
    """The document of one group and version."""
    schemas = Schemas(resources[0].group, resources[0].version)
    schemas.found |= OPTIONS
    names: dict[tuple[str, str, str], str] = {}
    for resource in resources:
        if resource.kind is not None and not resource.subresource:
            names[resource.about] = schemas.kind(resource.kind)
    for resource in resources:
        if resource.about not in names:
            names[resource.about] = schemas.standalone(resource.about)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": paths_of(f"/{place}", resources, names),
        "components": {
            "schemas": dict(sorted(schemas.found.items())),
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
