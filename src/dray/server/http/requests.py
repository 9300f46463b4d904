"""What a request asks for, and by whom: values that every part of the server reads and none changes.

Rules for this file: structs, not dataclasses: many are made for every request, and a frozen dataclass takes
ten times as long to make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.objects.stored_object import Held

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
MASTERS, NODES = "system:masters", "system:nodes"
NODE_PREFIX = "system:node:"

LONGEST_MANAGER = 128
"""So many bytes the name of a field manager may have."""

INSIDE = "inside"
"""Where a request comes from that came over no socket."""

READS = frozenset({"get", "list", "watch"})
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NO_EXTRA: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class User(msgspec.Struct, frozen=True):
    """Who asks, as authentication found out."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = _NO_EXTRA

    @property
    def node(self) -> str | None:
        """The name of the node, when a node asks."""
        if NODES in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX) or None
        return None


NOBODY = User(ANONYMOUS, (UNAUTHENTICATED,))


class Call(msgspec.Struct, frozen=True):
    """What is asked for.

    Verbs are those of Kubernetes: get list watch create update patch delete deletecollection for resources;
    the HTTP method in lower case for paths that are none (`kind` is None then). `plural` and `group` are also
    set for resources outside the table of kinds, such as reviews.
    """

    verb: str
    path: str
    kind: Kind | None = None
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = _NOTHING

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)

    @property
    def is_long(self) -> bool:
        """Whether the answer may last for as long as somebody reads it."""
        return self.verb == "watch" or self.subresource == "log"

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query


class Request(msgspec.Struct, frozen=True):
    """A call with everything that came along: who asks, headers (lower-case names) and the body."""

    call: Call
    user: User
    headers: Mapping[str, str] = _NOTHING
    body: bytes = b""
    audit_id: str = ""
    source: str = ""
    """The address it came from; empty when it came from inside."""
    decision: str = ""
    """Why it is allowed."""
    tidy: bool = False
    """Whether its body comes from our own writer, which writes no field twice."""

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "") or "*/*"

    @property
    def content_type(self) -> str:
        """The media type of the body; Python's official client sends none and means JSON."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() or "application/json"

    @property
    def manager(self) -> str:
        """Who owns the fields this request writes: `fieldManager`, or the program's name."""
        given = self.call.query.get("fieldManager", "")
        return given or _readable(self.headers.get("user-agent", "").partition("/")[0]) or "unknown"


@lru_cache(maxsize=1024)
def _readable(program: str) -> str:
    """The name of a program as people may read it; it is kept with every object the program writes."""
    return "".join(filter(str.isprintable, program)).strip()[:LONGEST_MANAGER]


JSON = "application/json"


class Answer(msgspec.Struct, frozen=True):
    """What goes back: a whole body, or a stream of parts."""

    code: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    held: Held | None = None
    """The object that the body tells, just as it is kept."""


def json_answer(document: Any, code: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """A document as an answer."""
    return Answer(code, write_json(document), JSON, headers)
