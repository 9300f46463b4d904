"""An API server and a real webhook beside it, over TLS, in one process; and short words to configure it."""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from aiohttp import web

from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.clock import SystemClock
from dray.gates import GateSet
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.store import Store
from dray.store.memory import MemoryStore
from dray.telemetry.logs import StructuredLogger
from tests.contract.api import Api, ServerResponse, keys, path

Document = dict[str, Any]
Reply = Document | web.StreamResponse
Answer = Callable[[Document], Reply | Awaitable[Reply]]

GROUP = "admissionregistration.k8s.io"
SERVICE = ("system", "hook")
CLAIM_RULE: Document = {
    "apiGroups": ["resource.k8s.io"],
    "apiVersions": ["v1"],
    "operations": ["*"],
    "resources": ["resourceclaims"],
}
CONFIG_RULE: Document = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["*"],
    "resources": ["configmaps"],
}


def home(sort: str, name: str = "") -> str:
    """Where configurations are; `sort` is validating or mutating."""
    return f"/apis/{GROUP}/v1/{sort}webhookconfigurations" + (f"/{name}" if name else "")


def allow(_request: Document) -> Document:
    return {"allowed": True}


def hanging(until: asyncio.Event) -> Callable[[Document], Awaitable[Document]]:
    """An answer that does not come before something happens."""

    async def hang(_request: Document) -> Document:
        await until.wait()
        return {"allowed": True}

    return hang


def patched(*operations: Document, **more: Any) -> Document:
    """An answer that changes the object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch", **more}


def labelled(request: Document, name: str, value: str = "yes") -> Document:
    """An answer that adds a label."""
    labels = {**(request["object"]["metadata"].get("labels") or {}), name: value}
    return patched({"op": "add", "path": "/metadata/labels", "value": labels})


@lru_cache(maxsize=1)
def certificates() -> CertificateAuthority:
    folder = tempfile.mkdtemp(prefix="dray-hook-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return CertificateAuthority.open(Path(folder), ("127.0.0.1", f"{SERVICE[1]}.{SERVICE[0]}.svc"))


@dataclass
class Webhook:
    """A server that answers reviews as it is told, by path, and remembers what it was asked."""

    address: str = ""
    asked: list[tuple[str, Document]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    connections: set[Any] = field(default_factory=set)
    hangs_up: bool = False
    """Whether it closes the connection of the next question and says nothing."""

    def on(self, path: str, answer: Answer) -> None:
        self.answers[path] = answer

    def requests(self, path: str) -> list[Document]:
        """What was asked at a path."""
        return [request for where, request in self.asked if where == path]

    @property
    def order(self) -> list[str]:
        return [where for where, _ in self.asked]

    async def answer(self, http: web.Request) -> web.StreamResponse:
        review = await http.json()
        assert http.transport is not None
        self.connections.add(http.transport.get_extra_info("peername"))
        if self.hangs_up:
            self.hangs_up = False
            http.transport.close()
            return web.Response()
        self.asked.append((http.path, review["request"]))
        made = self.answers.get(http.path, allow)(review["request"])
        said = await made if isinstance(made, Awaitable) else made
        if isinstance(said, web.StreamResponse):
            return said
        response = {"uid": review["request"]["uid"], **said}
        return web.json_response(
            {**{name: review[name] for name in ("apiVersion", "kind")}, "response": response}
        )


@asynccontextmanager
async def webhook() -> AsyncIterator[Webhook]:
    """A webhook that answers while the block lasts."""
    made = Webhook()
    application = web.Application(client_max_size=8 << 20)
    application.router.add_post("/{path:.*}", made.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates().build_server_context()).start()
        made.address = "{}:{}".format(*runner.addresses[0][:2])
        yield made
    finally:
        await runner.cleanup()


@dataclass
class World:
    """A server, whoever asks it, and a webhook."""

    api: Api
    hook: Webhook
    audit: Path
    lines: list[str]

    def entry(self, path: str = "/check", **fields: Any) -> Document:
        """One webhook of a configuration: asked about claims unless something else is said."""
        bundle = base64.b64encode(certificates().ca_pem).decode()
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": {"url": f"https://{self.hook.address}{path}", "caBundle": bundle},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [CLAIM_RULE],
            **fields,
        }

    async def configure(self, sort: str, name: str, *entries: Document) -> ServerResponse:
        kind = {"validating": "ValidatingWebhookConfiguration", "mutating": "MutatingWebhookConfiguration"}[
            sort
        ]
        document = {
            "apiVersion": f"{GROUP}/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": list(entries),
        }
        said = await self.api.ask("POST", home(sort), document)
        assert said.code == 201, said.document
        return said

    async def metric(self, *parts: str) -> float:
        """The sum of all samples whose lines have these parts."""
        text = (await self.api.ask("GET", "/metrics")).document
        lines = [line for line in text.splitlines() if all(part in line for part in parts)]
        return sum(float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#"))

    def recorded(self) -> list[Document]:
        """Lines of the audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@asynccontextmanager
async def hooked(
    store: Store | None = None, services: Mapping[tuple[str, str], str] | None = None
) -> AsyncIterator[World]:
    """A server and a webhook; services that are given by an empty address are the webhook."""
    kept = store or MemoryStore()
    lines: list[str] = []

    def took(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    async with webhook() as hook:
        known = {name: address or hook.address for name, address in (services or {}).items()}
        with tempfile.TemporaryDirectory() as folder:
            audit = Path(folder) / "audit.log"
            choices = ApiServerOptions(
                FeatureGateFilter(GateSet.from_defaults()),
                keys(),
                audit,
                StructuredLogger(took, SystemClock()),
                webhook_services=known,
            )
            async with ApiServer(kept, choices).run() as app:
                yield World(Api(app, kept, groups=("system:masters",)), hook, audit, lines)
    if store is None:
        await kept.close()
    assert [line for line in lines if "fault of the server" in line] == []


async def soon(is_so: Callable[[], bool]) -> None:
    """Wait until something is the case."""
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def tried(world: World, document: Document, **query: Any) -> ServerResponse:
    """What the server says when somebody creates an object."""
    plural = {"ResourceClaim": "resourceclaims", "ConfigMap": "configmaps"}[document["kind"]]
    version = document["apiVersion"].rpartition("/")[2]
    where = path(plural, namespace=document["metadata"]["namespace"], version=version)
    return await world.api.ask("POST", where, document, **query)
