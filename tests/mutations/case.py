"""One request of the comparison, and the objects it is about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

JSON = "application/json"
NEW_PREFIX = "new-"
"""What the names of objects begin with that a create sends."""

RESOURCE_VERSION = "@resourceVersion"
UID = "@uid"
"""Stand in a request for values of the stored object, which differ from server to server."""

_SHARES = {"thorough": 1, "main": 4, "light": 12, "stored": 8}

NAMESPACES = ("mutations", "admin")


@dataclass(frozen=True)
class Base:
    """A valid object that exists on the server while requests are sent."""

    name: str
    plural: str
    object: Document
    status: Document | None = None
    depth: str = "main"
    """How much of what is generated is sent: `thorough` everything, `main` some values of each field and a
    quarter of the cases that are the same for every kind, `light` less, `stored` only what a decoder
    notices, because dray stores objects of that kind without validating them.
    """

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def share(self) -> int:
        """One of how many cases that are the same for every kind is sent."""
        return _SHARES[self.depth]

    @property
    def api_version(self) -> str:
        return str(self.object["apiVersion"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace", ""))

    @property
    def collection(self) -> str:
        """The path of the objects of this kind beside this one."""
        return self.build_collection(self.namespace)

    def build_collection(self, namespace: str) -> str:
        """The path of the objects of this kind in a namespace."""
        top = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        return f"{top}/namespaces/{namespace}/{self.plural}" if namespace else f"{top}/{self.plural}"

    @property
    def path(self) -> str:
        """The path of this object."""
        return f"{self.collection}/{self.name}"

    def build_new(self) -> Document:
        """The same object under a name that does not exist yet."""
        return {**self.object, "metadata": {**self.object["metadata"], "name": NEW_PREFIX + self.name}}

    def build_update(self) -> Document:
        """The object as a client sends it that has read it before."""
        metadata = {**self.object["metadata"], "resourceVersion": RESOURCE_VERSION, "uid": UID}
        return {**self.object, "metadata": metadata}


@dataclass(frozen=True)
class Case:
    """A request; everything is tried without storing it, unless `dryRun` is absent from the query."""

    id: str
    base: Base
    method: str
    path: str
    body: Document | list[Any] | str | None = None
    """A document, or the text of a body that is no JSON."""
    content_type: str = JSON
    query: dict[str, str] = field(default_factory=lambda: {"dryRun": "All"})

    @property
    def text(self) -> str:
        """The body as it is sent, except for values of the stored object."""
        if self.body is None or isinstance(self.body, str):
            return self.body or ""
        return json.dumps(self.body, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        """What tells this request from any other."""
        parts = (self.method, self.path, self.content_type, sorted(self.query.items()), self.text)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    def fill_in(self, stored: Document) -> bytes:
        """The body with the values of the stored object."""
        metadata = stored.get("metadata", {})
        text = self.text.replace(RESOURCE_VERSION, metadata.get("resourceVersion", "0"))
        return text.replace(UID, metadata.get("uid", "")).encode()


def load_bases() -> list[Base]:
    """All objects, in the order of their files."""
    files = sorted((Path(__file__).parent / "objects").glob("*.yaml"))
    rows = [row for file in files for row in yaml.safe_load(file.read_text())]
    return [
        Base(
            row["base"],
            row["plural"],
            row["object"],
            row.get("status"),
            row.get("depth", "main"),
        )
        for row in rows
    ]
