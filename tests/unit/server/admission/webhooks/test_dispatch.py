"""Writes with webhooks: what holds while they are called, and when they are called again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dray.api.kinds import KINDS, Kind
from dray.server.admission.change import ADMITTED, AdmissionEffects, ObjectChange, RuleScope
from dray.server.admission.webhooks.external_admission import AdmissionDispatcher
from dray.server.admission.webhooks.review_objects import ReviewObject, StoredReviewObject
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.object_registry import (
    LOCK_AFTER_ATTEMPTS,
    ProposedWrite,
    SaveObject,
)
from dray.store import KeyUnchanged
from tests.unit.server.registries import CONFIGS, World, world


class Asked:
    """Webhooks that allow everything, and run a callback meanwhile."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.webhooks: Sequence[object] = ("one",)
        self.times = 0
        self.warnings: list[str] = []
        self.deadline = 1.0
        self.meanwhile = meanwhile

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        place: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> AdmissionDispatcher | None:
        return self

    async def run_mutating(
        self, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None:
        return subject

    async def run_validating(self, subject: ReviewObject | None, old: StoredReviewObject | None) -> None:
        self.times += 1
        if self.meanwhile is not None:
            await self.meanwhile(self.times)

    def reviews_subresource(
        self, request: ApiRequest, kind: Kind, about: tuple[str, str, str], body: dict[str, Any]
    ) -> bool:
        return True

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, about: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        return body


def config(**data: str) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def asked(audit_id: str = "id") -> ApiRequest:
    call = ApiCall("update", "", CONFIGS, "", "v1", "configmaps", "default", "c")
    return ApiRequest(call, RequestUser("ann"), audit_id=audit_id)


def proposal(**data: str) -> ProposedWrite:
    return ProposedWrite(PendingObject.from_document(config(**data)), lambda draft: draft, SaveObject)


async def write(there: World, audit_id: str = "id") -> str:
    written = await there.registry.write(
        asked(audit_id), CONFIGS, "default", "c", lambda _old: proposal(ours="1")
    )
    return str(written.stored.document["data"])


def test_a_concurrent_write_of_the_object_calls_webhooks_again():
    async def run_case() -> None:
        async with world(lambda _cache: []) as there:

            async def meanwhile(times: int) -> None:
                if times <= LOCK_AFTER_ATTEMPTS + 2:
                    await there.put(config(theirs=str(times)))

            there.registry.admission = webhooks = Asked(meanwhile)
            assert await write(there) == "{'ours': '1'}"
            assert webhooks.times == LOCK_AFTER_ATTEMPTS + 3

    asyncio.run(run_case())


class Elsewhere:
    """A rule that depends on another row, which changes so many times."""

    scopes = (RuleScope(KINDS),)

    def __init__(self, times: int) -> None:
        self.times = times

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if not change.request.audit_id:
            return ADMITTED
        self.times -= 1
        return AdmissionEffects((KeyUnchanged(b"/elsewhere", 7 if self.times >= 0 else 0),))


def test_a_concurrent_write_of_another_object_does_not():
    async def run_case() -> None:
        async with world(lambda _cache: [Elsewhere(LOCK_AFTER_ATTEMPTS + 2)]) as there:
            there.registry.admission = webhooks = Asked()
            assert await write(there) == "{'ours': '1'}"
            assert webhooks.times == 1

    asyncio.run(run_case())


def test_changes_by_the_server_itself_skip_webhooks():
    async def run_case() -> None:
        async with world(lambda _cache: []) as there:
            there.registry.admission = webhooks = Asked()
            assert await write(there, audit_id="") == "{'ours': '1'}"
            assert webhooks.times == 0

    asyncio.run(run_case())


def test_no_lock_is_held_while_webhooks_are_called():
    """A write that lost often calls no webhook while it holds the lock, even when webhooks appeared only
    then.
    """

    async def run_case() -> None:
        async with world(lambda _cache: [Elsewhere(LOCK_AFTER_ATTEMPTS + 1)]) as there:
            turns: list[bool] = []

            async def look(_times: int) -> None:
                turns.append(bool(there.registry.key_locks._locks))

            webhooks = Asked(look)
            decided = 0

            def decide(_old: StoredObject | None) -> ProposedWrite:
                nonlocal decided
                decided += 1
                if decided == LOCK_AFTER_ATTEMPTS + 1:
                    there.registry.admission = webhooks
                return proposal(ours="1")

            await there.registry.write(asked(), CONFIGS, "default", "c", decide)
            assert turns == [False]

    asyncio.run(run_case())
