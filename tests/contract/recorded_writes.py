"""Recorded writes of Kubernetes' programs: each is repeated on an object in the state it was in then.

Theory of operation: the store gets the object as it was, at the revision that was its resource version,
before the server starts. So the recorded bytes are sent as they are, with the uids and versions they name.
Owners of the object are stored, too, or the garbage collector of the server would delete it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.api.json_text import read_json, write_json
from dray.api.kinds import parse_document_kind
from dray.server.objects.stored_object import build_key
from dray.store import Put, Store
from dray.store.memory import MemoryStore
from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF
from tests.contract.api import Api, ServerResponse, serving
from tests.contract.documents import Document, config, namespace
from tests.kubernetes.recording_proxy import find_object_path

FILE = Path(__file__).parent / "recordings" / "clients-1.37.jsonl"
_GROUPS = {
    "system:kube-controller-manager": ("system:masters",),
    "driver": ("system:masters",),
    "asking": ("system:masters",),
}


@dataclass(frozen=True)
class RecordedWrite:
    """One request, what it changed, and what kube-apiserver answered."""

    line: Mapping[str, Any]

    @property
    def name(self) -> str:
        agent = self.line["agent"].split("/")[0]
        kind = self.line["type"].rpartition("/")[2].removeprefix("vnd.kubernetes.")
        return f"{agent} {self.line['method']} {self.line['path']} {kind}"

    @property
    def body(self) -> bytes:
        return base64.b64decode(self.line["body"])

    @property
    def is_protobuf(self) -> bool:
        return bool(self.line["type"] == PROTOBUF)

    @property
    def before(self) -> Document | None:
        found: Document | None = self.line["before"]
        return found

    @property
    def answer(self) -> Any:
        """The answer of kube-apiserver as a document; None when it has a token, which is not on record."""
        content = base64.b64decode(self.line["answer"])
        if not content:
            return None
        return kubernetes.decode(content) if self.line["answer_type"] == PROTOBUF else read_json(content)

    @property
    def is_alias(self) -> bool:
        """Whether its kind is stored as another one, so that it cannot be put into the store as it is."""
        return self.before is not None and parse_document_kind(self.before)[0].stored_as is not None

    @property
    def kind(self) -> str:
        """The plural of the kind, with the subresource."""
        path = self.object_path
        if path is None:
            return str(self.line["path"].rpartition("/")[2])
        return str(path.split("/")[-2] + self.line["path"].removeprefix(path))

    @property
    def deletes(self) -> bool:
        """Whether it is the write after which nothing keeps the object any more."""
        metadata = (self.before or {}).get("metadata", {})
        if self.line["method"] != "PUT" or "deletionTimestamp" not in metadata:
            return False
        body = kubernetes.decode(self.body)
        kept = body["metadata"].get("finalizers") or (body.get("spec") or {}).get("finalizers")
        return not kept and not self.kind.endswith("/status")

    @property
    def object_path(self) -> str | None:
        return find_object_path(self.line["path"])

    def log_in(self, api: Api) -> Api:
        """The client of who wrote it."""
        user = self.line["user"]
        nodes = ("system:nodes",) if user.startswith("system:node:") else ()
        return api.as_user(user, *_GROUPS.get(user, nodes))

    async def send(self, api: Api) -> ServerResponse:
        """Send the recorded bytes; only the version of a quota is another, because dray counts itself."""
        if self.kind != "resourcequotas/status":
            return await self._send_bytes(api, self.body)
        answer = await self._send_bytes(api, await self._build_current_body(api))
        while answer.code == 409:  # it was counted in between
            answer = await self._send_bytes(api, await self._build_current_body(api))
        return answer

    async def _send_bytes(self, api: Api, body: bytes) -> ServerResponse:
        headers = {"content-type": self.line["type"], "accept": f"{PROTOBUF},application/json"}
        return await self.log_in(api).ask(
            self.line["method"], self.line["path"], body, headers=headers, **self.line["query"]
        )

    async def _build_current_body(self, api: Api) -> bytes:
        """The recorded object with the version that the object has now."""
        document = kubernetes.decode(self.body)
        current = await api.get(str(self.object_path))
        metadata = {**document["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
        return kubernetes.encode({**document, "metadata": metadata})


def load_writes() -> list[RecordedWrite]:
    return [RecordedWrite(json.loads(line)) for line in FILE.read_text("utf-8").splitlines()]


@asynccontextmanager
async def serving_as_then(write: RecordedWrite) -> AsyncIterator[Api]:
    """A server with the object as it was, and with what that needs: namespace, owners, objects beside."""
    store = MemoryStore()
    before = write.before
    for document in (*_build_surroundings(write), *write.line.get("beside", ())):
        await _put(store, document)
    if before is not None and not write.is_alias:
        await _advance(store, int(before["metadata"]["resourceVersion"]) - 1)
        await _put(store, before)
    async with serving(store) as api:
        if before is not None and write.is_alias:
            metadata = {name: before["metadata"][name] for name in ("name", "namespace")}
            await api.create({**before, "metadata": metadata}, write.line["path"].rpartition("/")[0])
        yield api
    await store.close()


def _build_surroundings(write: RecordedWrite) -> Iterator[Document]:
    before, parts = write.before, write.line["path"].split("/")
    name = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:5] else ""
    if before is not None and before["kind"] == "Namespace":
        yield config("stays", name, finalizers=["example.com/stays"])
    elif name:
        yield namespace(name) | {"spec": {"finalizers": ["kubernetes"]}}
    written = before or (kubernetes.decode(write.body) if write.is_protobuf else {})
    for owner in written.get("metadata", {}).get("ownerReferences", ()):
        metadata = {"name": owner["name"], "uid": owner["uid"]}
        if owner["kind"] != "Node":
            metadata["namespace"] = name
        yield {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": metadata}


async def _put(store: Store, document: Document) -> None:
    kind, _ = parse_document_kind(document)
    metadata = {name: value for name, value in document["metadata"].items() if name != "resourceVersion"}
    stored = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
    stored |= {name: value for name, value in document.items() if name not in stored}
    key = build_key(kind, metadata.get("namespace", ""), metadata["name"])
    await store.txn([], [Put(key, write_json(stored))])


async def _advance(store: Store, revision: int) -> None:
    """Write until the store is at a revision."""
    while await store.get_revision() < revision:
        await store.txn([], [Put(b"/recorded", b"")])
