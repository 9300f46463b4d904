"""Requests and responses as values: the call, its user, headers and body, and what goes back.

Rules for this file: structs, not dataclasses: the server makes many of them for every request, and a frozen
dataclass takes ten times as long to make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api import transactions
from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.objects.stored_object import StoredObject
from dray.store import CommitRecord

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
MASTERS, NODES = "system:masters", "system:nodes"
NODE_PREFIX = "system:node:"

MAX_FIELD_MANAGER_BYTES = 128

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

IN_PROCESS = "inside"
"""The source of a request that came over no socket."""

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_WRITE_METHODS = frozenset({"post", "put", "patch", "delete"})

REVIEW_KINDS: Mapping[tuple[str, str], tuple[str, bool]] = MappingProxyType(
    {
        ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", False),
        ("authentication.k8s.io", "tokenreviews"): ("TokenReview", False),
        ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
        ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
        ("authorization.k8s.io", "subjectaccessreviews"): ("SubjectAccessReview", False),
        ("authorization.k8s.io", "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    }
)
"""Reviews, which are answered and not stored: kind and whether it is namespaced, by group and plural."""

TRANSACTIONS = (transactions.GROUP, transactions.VERSION, transactions.PLURAL)
"""Group, version and plural of transactions, which are carried out and not stored."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_NO_EXTRA: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class RequestUser(msgspec.Struct, frozen=True):
    """The authenticated user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = _NO_EXTRA

    @property
    def node_name(self) -> str | None:
        """The name of the node, when the user is a node."""
        if NODES in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX) or None
        return None

    def to_document(self) -> dict[str, Any]:
        """Return the user as `UserInfo`, the form of reviews."""
        fields: dict[str, Any] = {
            "username": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra.items()},
        }
        return {field: value for field, value in fields.items() if value}


ANONYMOUS_USER = RequestUser(ANONYMOUS, (UNAUTHENTICATED,))


class ApiCall(msgspec.Struct, frozen=True):
    """What a request asks for.

    Verbs are those of Kubernetes: get list watch create update patch delete deletecollection for resources;
    the HTTP method in lower case for non-resource paths (`kind` is None then). `plural` and `group` are also
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
    query: Mapping[str, str] = _EMPTY
    unserved_code: int = 0
    """404 or 405 when nothing is served for this method and path: an answer only for who may ask."""

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)

    @property
    def is_long_running(self) -> bool:
        """Whether the response is a stream that lasts as long as the client reads it."""
        return self.verb == "watch" or self.subresource == "log"

    @property
    def is_write(self) -> bool:
        """Whether the call may change something; a review only asks a question, though it is created."""
        if self.is_resource:
            return self.verb in WRITE_VERBS and (self.group, self.plural) not in REVIEW_KINDS
        return self.verb in _WRITE_METHODS

    @property
    def is_transaction(self) -> bool:
        """Whether the body has requests to carry out together."""
        is_virtual = self.kind is None and self.verb == "create"
        return is_virtual and (self.group, self.version, self.plural) == TRANSACTIONS

    @property
    def writes_objects(self) -> bool:
        """Whether the call may change stored objects, and nothing else."""
        if self.is_transaction:
            return True
        return self.kind is not None and self.verb in WRITE_VERBS and self.subresource != "token"

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query


class ApiRequest(msgspec.Struct, frozen=True):
    """A call with its user, headers (lower-case names) and body."""

    call: ApiCall
    user: RequestUser
    """The user whose rights count; the impersonated one, when another user is impersonated."""
    headers: Mapping[str, str] = _EMPTY
    body: bytes = b""
    audit_id: str = ""
    source: str = ""
    """The address it came from, or `IN_PROCESS`."""
    authorization_reason: str = ""
    """Why it is allowed."""
    has_unique_fields: bool = False
    """Whether the body comes from our own JSON writer, which writes no field twice."""
    impersonator: RequestUser | None = None
    """The authenticated user, when it impersonates `user`."""
    parts: tuple[ApiRequest, ...] = ()
    """The requests inside a transaction."""
    record: CommitRecord | None = None
    """What the audit log must have before the first commit of this request; None when it has it already."""

    @property
    def caller(self) -> RequestUser:
        """The authenticated user, whoever is impersonated."""
        return self.impersonator or self.user

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "") or "*/*"

    @property
    def content_type(self) -> str:
        """The media type of the body; Python's official client sends none and means JSON."""
        return _clean_media_type(self.headers.get("content-type", ""))

    @property
    def field_manager(self) -> str:
        """The manager of the fields this request writes: `fieldManager`, or the program's name."""
        given = self.call.query.get("fieldManager", "")
        return given or _clean_program_name(self.headers.get("user-agent", "").partition("/")[0]) or "unknown"


@lru_cache(maxsize=1024)
def _clean_media_type(header: str) -> str:
    """The media type in a header, without its parameters."""
    return header.partition(";")[0].strip().lower() or JSON


@lru_cache(maxsize=1024)
def _clean_program_name(program: str) -> str:
    """The printable part of a program's name; it is stored with every object the program writes."""
    return "".join(filter(str.isprintable, program)).strip()[:MAX_FIELD_MANAGER_BYTES]


class ApiResponse(msgspec.Struct, frozen=True):
    """A response: a whole body, or a stream of parts."""

    code: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    stored: StoredObject | None = None
    """The object in the body, when the body is its stored form."""
    parts: tuple[PartResult, ...] = ()
    """What became of the requests inside a transaction."""


class PartResult(msgspec.Struct, frozen=True):
    """What became of a request inside a transaction."""

    code: int = 0
    """The status code; 0 when it was not carried out."""
    name: str = ""
    """The name of the object."""
    body: bytes = b""
    stored: StoredObject | None = None
    """The object in the body, when the body is its stored form."""


def build_json_response(
    document: Any, code: int = 200, headers: Sequence[tuple[str, str]] = ()
) -> ApiResponse:
    """A document as a response."""
    return ApiResponse(code, write_json(document), JSON, headers)
