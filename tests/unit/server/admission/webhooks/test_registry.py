"""Writes that webhooks are asked about: what holds while they are, and what is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dray.api.kinds import Kind
from dray.server.admission.change import NOTHING, Change, Extra
from dray.server.admission.webhooks.review_objects import Stored, Subject
from dray.server.http.requests import Call, Request, User
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held
from dray.server.registry.object_registry import PATIENT, Keep, Proposal, Visit
from dray.store import Unchanged
from tests.unit.server.registries import CONFIGS, World, world


class Asked:
    """Webhooks that let everything pass, and something happen meanwhile."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.hooks: Sequence[object] = ("one",)
        self.times = 0
        self.warnings: list[str] = []
        self.deadline = 1.0
        self.meanwhile = meanwhile

    def visit(
        self, request: Request, kind: Kind, place: tuple[str, str], old: Held | None, deadline: float = 0.0
    ) -> Visit | None:
        return self

    async def mutated(self, subject: Subject | None, old: Stored | None) -> Subject | None:
        return subject

    async def validated(self, subject: Subject | None, old: Stored | None) -> None:
        self.times += 1
        if self.meanwhile is not None:
            await self.meanwhile(self.times)

    async def errand(
        self, request: Request, kind: Kind, about: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        return body


def config(**data: str) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def asked(audit_id: str = "id") -> Request:
    call = Call("update", "", CONFIGS, "", "v1", "configmaps", "default", "c")
    return Request(call, User("ann"), audit_id=audit_id)


def proposal(**data: str) -> Proposal:
    return Proposal(Draft.of_document(config(**data)), lambda draft: draft, Keep)


async def write(there: World, audit_id: str = "id") -> str:
    written = await there.registry.write(
        asked(audit_id), CONFIGS, "default", "c", lambda _old: proposal(ours="1")
    )
    return str(written.held.document["data"])


def test_somebody_who_was_faster_at_the_object_means_to_ask_again():
    async def story() -> None:
        async with world(lambda _cache: []) as there:

            async def meanwhile(times: int) -> None:
                if times <= PATIENT + 2:
                    await there.put(config(theirs=str(times)))

            there.registry.admission = webhooks = Asked(meanwhile)
            assert await write(there) == "{'ours': '1'}"
            assert webhooks.times == PATIENT + 3

    asyncio.run(story())


class Elsewhere:
    """A rule that relies on another row, which somebody changes so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def judge(self, change: Change) -> Extra:
        if not change.request.audit_id:
            return NOTHING
        self.times -= 1
        return Extra((Unchanged(b"/elsewhere", 7 if self.times >= 0 else 0),))


def test_somebody_who_was_faster_elsewhere_does_not():
    async def story() -> None:
        async with world(lambda _cache: [Elsewhere(PATIENT + 2)]) as there:
            there.registry.admission = webhooks = Asked()
            assert await write(there) == "{'ours': '1'}"
            assert webhooks.times == 1

    asyncio.run(story())


def test_what_the_server_does_by_itself_is_not_asked_about():
    async def story() -> None:
        async with world(lambda _cache: []) as there:
            there.registry.admission = webhooks = Asked()
            assert await write(there, audit_id="") == "{'ours': '1'}"
            assert webhooks.times == 0

    asyncio.run(story())


def test_nobody_waits_in_a_turn_for_somebody_who_asks():
    """A write that lost often asks nobody inside its turn, even when webhooks came only then."""

    async def story() -> None:
        async with world(lambda _cache: [Elsewhere(PATIENT + 1)]) as there:
            turns: list[bool] = []

            async def look(_times: int) -> None:
                turns.append(bool(there.registry._turns))

            webhooks = Asked(look)
            decided = 0

            def decide(_old: Held | None) -> Proposal:
                nonlocal decided
                decided += 1
                if decided == PATIENT + 1:
                    there.registry.admission = webhooks
                return proposal(ours="1")

            await there.registry.write(asked(), CONFIGS, "default", "c", decide)
            assert turns == [False]

    asyncio.run(story())
