"""Objects as answers: whole, as rows of a table, or only their metadata; one, many, or an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server import tables
from dray.server.http.content_negotiation import OBJECTS, PLAIN, WATCHES, Form, Shape, negotiate
from dray.server.http.errors import Failure
from dray.server.http.requests import Answer, Request
from dray.server.objects.conversion import is_kept_form, shown
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

BOOKMARK_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Listed:
    """Some objects, as they were at a revision; `following` continues after them."""

    held: Sequence[Held]
    revision: int
    following: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.following:
            found["continue"] = self.following
        if self.remaining:
            found["remainingItemCount"] = self.remaining
        return found


class Showing:
    """Writes answers in the form a client asks for."""

    def __init__(self, cache: Cache, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now

    def one(
        self, request: Request, kind: Kind, held: Held, *, code: int = 200, warnings: Sequence[str] = ()
    ) -> Answer:
        """One object."""
        form = negotiate(request.accept, OBJECTS)
        version = request.call.version
        if form.shape is Shape.WHOLE:
            body = shown(kind, version, held)
        elif form.shape is Shape.TABLE:
            listing = Listed([held], held.revision)
            body = write_json(self._table(request, kind, listing, form))
        else:
            body = write_json(tables.partial(held, form.version))
        kept = held if form == PLAIN and is_kept_form(kind, version) else None
        headers = warning_headers(warnings) if warnings else ()
        return Answer(code, form.write(body), form.content_type, headers, kept)

    def many(self, request: Request, kind: Kind, listing: Listed) -> Answer:
        """A list of objects."""
        form = negotiate(request.accept, OBJECTS)
        version = request.call.version
        if form.shape is Shape.TABLE:
            body = write_json(self._table(request, kind, listing, form))
        elif form.shape is Shape.WHOLE:
            body = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
                kind.name.encode(),
                kind.api_version(version).encode(),
                write_json(listing.metadata),
                b",".join([shown(kind, version, held) for held in listing.held]),
            )
        else:
            document = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{form.version}",
                "metadata": listing.metadata,
                "items": [tables.partial(held, form.version) for held in listing.held],
            }
            body = write_json(document)
        return Answer(200, form.write(body), form.content_type)

    def _table(self, request: Request, kind: Kind, listing: Listed, form: Form) -> Mapping[str, Any]:
        document = tables.table(
            kind,
            listing.held,
            now=self._now(),
            include=request.call.query.get("includeObject", "Metadata"),
            cache=self._cache,
            version=form.version,
        )
        return {**document, "metadata": listing.metadata}

    def events(self, request: Request, kind: Kind) -> Events:
        """The events of a watch, in the form its client asks for."""
        form = negotiate(request.accept, WATCHES)
        return Events(self, request, kind, form)


class Events:
    """Writes the events of one watch; events in the usual form are shared between watches by the feed."""

    def __init__(self, showing: Showing, request: Request, kind: Kind, form: Form) -> None:
        self._showing = showing
        self._request = request
        self._kind = kind
        self._form = form
        self._headed = False

    @property
    def shared(self) -> tuple[str, str, str] | None:
        """What events in this form have in common; None when they are written for this watch alone."""
        if self._form != PLAIN:
            return None
        return self._kind.group, self._kind.name, self._request.call.version

    @property
    def as_kept(self) -> bool:
        """Whether objects are shown just as they are kept."""
        return self._form == PLAIN and is_kept_form(self._kind, self._request.call.version)

    def event(self, type_: str, held: Held) -> bytes:
        """One object that came, changed or went."""
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), self._object(held))

    def _object(self, held: Held) -> bytes:
        form = self._form
        if form.shape is Shape.WHOLE:
            return shown(self._kind, self._request.call.version, held)
        if form.shape is not Shape.TABLE:
            return write_json(tables.partial(held, form.version))
        document = self._showing._table(self._request, self._kind, Listed([held], held.revision), form)
        if self._headed:
            document = {**document, "columnDefinitions": None}
        self._headed = True
        return write_json(document)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """How far the watch has come, without an object."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {BOOKMARK_END: "true"}
        document: dict[str, Any] = {
            "kind": self._kind.name,
            "apiVersion": self._kind.api_version(self._request.call.version),
            "metadata": metadata,
        }
        if self._form.shape is Shape.TABLE:
            document = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._form.version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [{"cells": [], "object": document}],
            }
        elif self._form.shape is not Shape.WHOLE:
            document |= {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{self._form.version}",
            }
        return write_json({"type": "BOOKMARK", "object": document}) + b"\n"


def error_event(failure: Failure) -> bytes:
    """The last line of a watch that cannot go on."""
    return write_json({"type": "ERROR", "object": failure.document()}) + b"\n"


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Warnings as headers, each once."""
    return [("warning", f"299 - {_quoted(text)}") for text in dict.fromkeys(warnings)]


def _quoted(text: str) -> str:
    """A text that fits into a header: ASCII, one line, quotes escaped."""
    plain = "".join(char if 32 <= ord(char) < 127 else "?" for char in " ".join(text.split()))
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
