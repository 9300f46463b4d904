"""Which part of the server carries out a call: a table by verb and subresource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.kinds import Kind
from dray.server.discovery.resources import WITHOUT
from dray.server.http.content_negotiation import JSON
from dray.server.http.errors import invalid_options, method_not_allowed, no_such_path
from dray.server.http.requests import LONGEST_MANAGER, Answer, Call, Request, json_answer
from dray.server.http.responses import Listed, Showing, warning_headers
from dray.server.http.routing import BINDINGS
from dray.server.objects.stored_object import Held
from dray.server.registry.deleter import Removing
from dray.server.registry.object_registry import Written
from dray.server.registry.patcher import Patching
from dray.server.registry.pod_subresources import Errands
from dray.server.registry.reader import Reading
from dray.server.registry.selectors import choice
from dray.server.registry.strategies import TOLD_WHEN_GONE, named
from dray.server.registry.watch_server import Watching
from dray.server.registry.writer import Writing

Reviewer = Callable[[Request], Awaitable[Answer]]
"""Answers questions that are not kept: reviews, and tokens of service accounts."""


@dataclass(frozen=True)
class Service:
    """Carries out calls on resources."""

    reading: Reading
    writing: Writing
    patching: Patching
    removing: Removing
    errands: Errands
    watching: Watching
    showing: Showing
    reviewer: Reviewer
    logs: Reviewer
    """Answers what a container has said."""

    async def answer(self, request: Request) -> Answer:
        """Carry out a call on a resource."""
        call, kind = request.call, request.call.kind
        _check_dry_run(call)
        _check_manager(call)
        if kind is None or call.subresource == "token":
            if call.verb != "create":
                raise method_not_allowed()
            return await self.reviewer(request)
        if call.plural == BINDINGS:
            return await self._bind(request, kind)
        step = _STEPS.get((call.verb, call.subresource))
        if step is None or call.verb in WITHOUT.get((kind.group, kind.plural), ()):
            raise method_not_allowed() if call.subresource in (*kind.subresources, "") else no_such_path()
        return await step(self, request, kind)

    async def _get(self, request: Request, kind: Kind) -> Answer:
        return self.showing.one(request, kind, await self.reading.get(request, kind))

    async def _list(self, request: Request, kind: Kind) -> Answer:
        return self.showing.many(request, kind, await self.reading.list(request, kind))

    async def _watch(self, request: Request, kind: Kind) -> Answer:
        return Answer(200, await self.watching.open(request, kind), f"{JSON};stream=watch")

    async def _create(self, request: Request, kind: Kind) -> Answer:
        return self._written(request, kind, await self.writing.create(request, kind, request.call.version))

    async def _update(self, request: Request, kind: Kind) -> Answer:
        return self._written(request, kind, await self.writing.update(request, kind, request.call.version))

    async def _patch(self, request: Request, kind: Kind) -> Answer:
        return self._written(request, kind, await self.patching.patch(request, kind, request.call.version))

    def _written(self, request: Request, kind: Kind, written: Written) -> Answer:
        code = 201 if written.created else 200
        return self.showing.one(request, kind, written.held, code=code, warnings=written.warnings)

    async def _delete(self, request: Request, kind: Kind) -> Answer:
        written = await self.removing.delete(request, kind)
        if not written.gone or named(kind) in TOLD_WHEN_GONE:
            return self.showing.one(request, kind, written.held, warnings=written.warnings)
        return json_answer(_success(kind, written.held), headers=warning_headers(written.warnings))

    async def _delete_collection(self, request: Request, kind: Kind) -> Answer:
        chosen = choice(kind, request.call.query)
        gone = await self.removing.delete_collection(request, kind, chosen)
        return self.showing.many(request, kind, Listed(gone, self.removing.revision))

    async def _log(self, request: Request, kind: Kind) -> Answer:
        return await self.logs(request)

    async def _bind(self, request: Request, kind: Kind) -> Answer:
        await self.errands.bind(request, kind)
        return json_answer(_done(201), 201)

    async def _evict(self, request: Request, kind: Kind) -> Answer:
        await self.errands.evict(request, kind)
        return json_answer(_done(201), 201)


def _check_dry_run(call: Call) -> None:
    """Whoever misspells a dry run must not find that it was none."""
    wanted = call.query.get("dryRun")
    if wanted not in (None, "All"):
        what = f'Unsupported value: "{wanted}": supported values: "All"'
        raise invalid_options(f"{call.verb.capitalize()}Options", "dryRun", what, "FieldValueNotSupported")


def _check_manager(call: Call) -> None:
    """The name of a manager is kept with every object it writes."""
    manager = call.query.get("fieldManager", "")
    if len(manager.encode()) > LONGEST_MANAGER or not manager.isprintable():
        what = f"Invalid value: must be printable and have at most {LONGEST_MANAGER} bytes"
        raise invalid_options(f"{call.verb.capitalize()}Options", "fieldManager", what, "FieldValueInvalid")


def _done(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _success(kind: Kind, held: Held) -> dict[str, Any]:
    details = {"name": held.name, "group": kind.group, "kind": kind.plural, "uid": held.metadata.uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }


Step = Callable[[Service, Request, Kind], Awaitable[Answer]]

_STEPS: Mapping[tuple[str, str], Step] = {
    ("get", ""): Service._get,
    ("get", "status"): Service._get,
    ("get", "log"): Service._log,
    ("list", ""): Service._list,
    ("watch", ""): Service._watch,
    ("create", ""): Service._create,
    ("update", ""): Service._update,
    ("update", "status"): Service._update,
    ("update", "finalize"): Service._update,
    ("patch", ""): Service._patch,
    ("patch", "status"): Service._patch,
    ("delete", ""): Service._delete,
    ("deletecollection", ""): Service._delete_collection,
    ("create", "binding"): Service._bind,
    ("create", "eviction"): Service._evict,
}
