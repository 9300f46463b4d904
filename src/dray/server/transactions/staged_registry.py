"""The staged registry: where the verbs write while a transaction is decided.

Theory of operation: the verbs are those of single requests, over a registry that stores nothing. A write is
decided and admitted as usual, and becomes one step of a sequence for the store. Its result is shown by the
cache to the steps after it, at a revision that stands for the one the store will assign; when a later step
relies on it, it compares that revision. Nothing here waits, so nobody else sees what is not committed, and
the cache does not change between two steps.

Admission webhooks would have to be waited for. A write that one of them reviews refuses the transaction, and
the client sends its requests one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.api.transactions import UNAVAILABLE_CODE, UNAVAILABLE_REASON
from dray.server.admission.webhooks.external_admission import SubresourceKind
from dray.server.http.errors import ApiStatusError, new_bad_request
from dray.server.http.requests import ApiRequest
from dray.server.objects.stored_object import StoredObject, build_key, get_storage_kind
from dray.server.registry.object_registry import (
    DecideWrite,
    LeaveUnchanged,
    ObjectRegistry,
    PlannedWrite,
    ProposedWrite,
    WriteResult,
    build_change,
)
from dray.server.watch.cache import WatchCache
from dray.store import KeyUnchanged, TxnStep, Write, build_step_revision, resolve_step_revision

_Value = TypeVar("_Value")


class StagedStep(msgspec.Struct, frozen=True):
    """One write that is decided; `planned` is None when it changes nothing."""

    step: TxnStep
    planned: PlannedWrite | None

    def complete_result(self, result: WriteResult, number: int, revisions: Sequence[int]) -> WriteResult:
        """The result of the write with the revisions that the store has assigned to the steps."""
        if self.planned is not None:
            return replace(result, stored=self.planned.build_result(revisions[number]).stored)
        stored = result.stored
        revision = resolve_step_revision(stored.revision, revisions)
        return replace(result, stored=replace(stored, revision=revision))


class StagedRegistry:
    """Collects the writes of one transaction at a time."""

    def __init__(self, registry: ObjectRegistry) -> None:
        self._registry = registry
        self._steps: list[StagedStep] = []
        self._stage: Callable[[Write, int], None] | None = None

    @property
    def cache(self) -> WatchCache:
        return self._registry.cache

    @contextmanager
    def stage(self) -> Iterator[list[StagedStep]]:
        """Collect the steps of a transaction, and show their results, inside the block."""
        assert self._stage is None, "a transaction is decided without a pause"
        with self.cache.stage_writes() as self._stage:
            try:
                yield self._steps
            finally:
                self._steps, self._stage = [], None

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> dict[str, Any]:
        admission = self._registry.admission
        if admission.webhooks and admission.reviews_subresource(request, kind, reviewed_kind, body):
            raise _new_reviewed()
        return body

    async def write(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, decide: DecideWrite
    ) -> WriteResult:
        """Decide a write as the next step."""
        if request.call.dry_run:
            raise new_bad_request("a transaction has no dry run; leave `dryRun` out")
        key = build_key(kind, namespace, name)
        old = self.cache.get_by_key(key)
        decision = decide(old)
        if isinstance(decision, ProposedWrite) or request.call.verb == "delete":
            self._refuse_reviewed(request, kind, (namespace, name), old)
        if isinstance(decision, ProposedWrite):
            decision = decision.validate(decision.pending)
        if isinstance(decision, LeaveUnchanged):
            assert old is not None
            self._steps.append(StagedStep(TxnStep((KeyUnchanged(key, old.revision),), ()), None))
            return WriteResult(old)
        change = build_change(request, get_storage_kind(kind), (namespace, name), old, decision)
        return self._add(self._registry.plan_write(change, key))

    def _add(self, planned: PlannedWrite) -> WriteResult:
        assert self._stage is not None
        revision = build_step_revision(len(self._steps))
        change = planned.change
        for write in planned.writes:
            self._stage(write, revision)
        self._steps.append(
            StagedStep(TxnStep(planned.compares, planned.writes), planned if planned.writes else None)
        )
        if not planned.writes or change.pending is None:
            assert change.old is not None
            return WriteResult(change.old, deleted=change.pending is None, warnings=planned.warnings)
        stored = StoredObject(change.kind, planned.key, planned.value, revision)
        return WriteResult(stored, created=change.old is None, warnings=planned.warnings)

    def _refuse_reviewed(
        self, request: ApiRequest, kind: Kind, object_name: tuple[str, str], old: StoredObject | None
    ) -> None:
        admission = self._registry.admission
        if admission.webhooks and admission.build_dispatcher(request, kind, object_name, old) is not None:
            raise _new_reviewed()


def run_at_once(decision: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a coroutine that has nothing to wait for."""
    try:
        decision.send(None)
    except StopIteration as done:
        value: _Value = done.value
        return value
    decision.close()
    raise RuntimeError("a write of a transaction waits while it is decided")


def _new_reviewed() -> ApiStatusError:
    why = (
        "admission webhooks review this request, and transactions are decided without them; "
        "send the requests one by one"
    )
    return ApiStatusError(UNAVAILABLE_CODE, UNAVAILABLE_REASON, why)
