"""The two servers that requests are sent to: a kube-apiserver, and dray in this process."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from dray.client.transport import JSON, TransportRequest
from tests.contract.api import Api, serving
from tests.mutations.answer import Answer
from tests.mutations.case import NAMESPACES, Base, Case, Document
from tests.support.in_process_transport import InProcessTransport

_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_FORCE = {"gracePeriodSeconds": "0"}


class Server(Protocol):
    """Something that answers requests of an administrator."""

    async def send(
        self, method: str, path: str, query: dict[str, str], body: bytes, content_type: str
    ) -> tuple[int, str, bytes]:
        """Code, warnings and body of a response."""
        ...


class KubernetesServer:
    """A kube-apiserver, by kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as file:
            parts = (user["client-certificate-data"], user["client-key-data"])
            file.write(b"\n".join(map(base64.b64decode, parts)))
            file.flush()
            context.load_cert_chain(file.name)
        address = urlsplit(cluster["server"])
        assert address.hostname is not None
        self._connection = http.client.HTTPSConnection(address.hostname, address.port, context=context)

    async def send(
        self, method: str, path: str, query: dict[str, str], body: bytes, content_type: str
    ) -> tuple[int, str, bytes]:
        headers = {"Accept": JSON} | ({"Content-Type": content_type} if content_type else {})
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        self._connection.request(method, target, body or None, headers)
        response = self._connection.getresponse()
        return response.status, ", ".join(response.headers.get_all("Warning") or ()), response.read()

    def close(self) -> None:
        self._connection.close()


class DrayServer:
    """An API server of dray in this process."""

    def __init__(self, api: Api) -> None:
        groups = ("system:masters", "system:authenticated")
        self._transport = InProcessTransport(api.app, "admin", groups)

    async def send(
        self, method: str, path: str, query: dict[str, str], body: bytes, content_type: str
    ) -> tuple[int, str, bytes]:
        headers = {} if body or not content_type else {"content-type": content_type}
        request = TransportRequest(method, path, query, body, content_type, JSON, headers)
        response = await self._transport.request(request)
        return response.code, response.headers.get("warning", ""), response.body


class CaseRunner:
    """Creates the objects that cases are about, and asks a server one case after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stored: dict[str, Document] = {}

    async def prepare(self, bases: Sequence[Base]) -> None:
        """Create namespaces and objects."""
        for name in NAMESPACES:
            labels = {_ADMIN_LABEL: "true"} if name == "admin" else {}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            await self._store("POST", "/api/v1/namespaces", body)
        for base in bases:
            stored = await self._store("POST", base.collection, base.object)
            if base.status is not None:
                stored = await self._store("PUT", f"{base.path}/status", {**stored, "status": base.status})
            self._stored[base.name] = stored

    async def _store(self, method: str, path: str, body: Document) -> Document:
        code, _, answer = await self._server.send(
            method, path, {}, json.dumps(body, separators=(",", ":")).encode(), JSON
        )
        assert code in (200, 201), f"{method} {path}: {answer.decode()}"
        return dict(json.loads(answer))

    async def ask(self, case: Case) -> Answer:
        """Send the request of a case; what it stored is deleted again."""
        body = case.fill_in(self._stored[case.base.name])
        code, warnings, text = await self._server.send(
            case.method, case.path, case.query, body, case.content_type
        )
        document = _read_document(text)
        if code == 201 and case.query.get("dryRun") != "All" and "metadata" in document:
            created = f"{case.path}/{document['metadata']['name']}"
            await self._server.send("DELETE", created, _FORCE, b"", JSON)
        return Answer.read(code, document, [_unescape(found) for found in _WARNING.findall(warnings)])


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _read_document(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@asynccontextmanager
async def run_dray(bases: Sequence[Base]) -> AsyncIterator[CaseRunner]:
    """Run dray with the objects of all cases."""
    async with serving() as api:
        runner = CaseRunner(DrayServer(api))
        await runner.prepare(bases)
        yield runner
