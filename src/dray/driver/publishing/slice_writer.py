"""The slice writer: lists the slices of a driver and performs the writes of plans.

Theory of operation: before a feature is used for the first time, the writer sends one slice that needs it as
a dry run; the response shows whether the server keeps the fields. So nothing harmful is published: devices
without their counters could be allocated twice. The writer writes new and changed slices first and deletes
old ones last, so that a pool exists until its next generation does. It compares every response with the
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from dray.api.core import Node
from dray.api.meta import OwnerRef
from dray.api.resource import ResourceSlice
from dray.client.client import Client, DeleteOptions
from dray.client.errors import InvalidObjectError, NotFoundError
from dray.client.object_refs import ObjectSelector
from dray.driver.publishing.dropped_fields import (
    DroppedSliceField,
    FieldDroppedError,
    find_dropped_fields,
    find_required_gates,
    infer_dropped_fields,
)
from dray.driver.publishing.pool_plan import PoolPlan

WrittenSlices = dict[str, dict[str, ResourceSlice]]
"""By pool and name: slices as the server stored them when they were written or found unchanged."""

_Write = Callable[[], Awaitable[None]]


class SliceWriter:
    """Reads and writes the slices of a driver on the server."""

    def __init__(self, client: Client, selection: ObjectSelector, max_concurrent: int) -> None:
        self._client, self._selection, self._max_concurrent = client, selection, max_concurrent
        self._verified_gates: set[str] = set()

    async def list_slices(self) -> tuple[ResourceSlice, ...]:
        """Return the slices that the server has now."""
        return tuple((await self._client.list(ResourceSlice, selector=self._selection)).items)

    async def get_owner(self, node: str) -> OwnerRef | None:
        """Return a reference to the node, with which its slices are garbage-collected."""
        if not node:
            return None
        found = await self._client.get(Node, node)
        return OwnerRef(api_version="v1", kind="Node", name=node, uid=found.metadata.uid, controller=True)

    # --- dry runs ---

    async def verify_fields_kept(self, plans: Sequence[PoolPlan]) -> None:
        """Check by dry run that the server keeps the fields in use; else raise `FieldDroppedError`."""
        slices = [each for plan in plans for each in _list_written(plan)]
        needed = frozenset[str]().union(*map(find_required_gates, slices)) - self._verified_gates
        lost = await self.dry_run(plans, needed)
        if lost:
            raise FieldDroppedError(lost)
        self._verified_gates |= needed

    async def dry_run(
        self, plans: Sequence[PoolPlan], gates: Collection[str]
    ) -> tuple[DroppedSliceField, ...]:
        """Return the fields that the server would drop, tried with one slice per unverified gate."""
        untried, lost = set(gates) - self._verified_gates, list[DroppedSliceField]()
        for plan in plans:
            for old, new in (*((None, new) for new in plan.creates), *plan.updates):
                if untried & find_required_gates(new):
                    untried -= find_required_gates(new)
                    lost += await self._dry_run_write(old, new)
        return tuple(lost)

    async def _dry_run_write(
        self, old: ResourceSlice | None, new: ResourceSlice
    ) -> tuple[DroppedSliceField, ...]:
        try:
            if old is None:
                return find_dropped_fields(new, await self._client.create(new, dry_run=True))
            return find_dropped_fields(new, await self._client.patch_changes(old, new, dry_run=True))
        except InvalidObjectError as refused:
            lost = infer_dropped_fields(new, (cause.field for cause in refused.causes))
            if not lost:
                raise
            return lost

    # --- writing ---

    async def write(self, plans: Sequence[PoolPlan]) -> WrittenSlices:
        """Perform the plans and return all slices after them; raises `FieldDroppedError` when the server
        dropped a field despite the dry run.
        """
        lost: list[DroppedSliceField] = []
        written: WrittenSlices = {}

        def keep(sent: ResourceSlice, stored: ResourceSlice) -> None:
            lost.extend(find_dropped_fields(sent, stored))
            written.setdefault(sent.spec.pool.name, {})[sent.metadata.name] = stored

        for plan in plans:
            for each in plan.wanted:
                written.setdefault(each.spec.pool.name, {})[each.metadata.name] = each
        created_names = {each.metadata.name for plan in plans for each in plan.creates}
        deletes = [each for plan in plans for each in plan.deletes]
        await self.delete([each for each in deletes if each.metadata.name in created_names])
        await self._run_concurrently(
            [
                *(partial(self._create, new, keep) for plan in plans for new in plan.creates),
                *(partial(self._update, old, new, keep) for plan in plans for old, new in plan.updates),
            ]
        )
        await self.delete([each for each in deletes if each.metadata.name not in created_names])
        if lost:
            self._verified_gates.clear()
            raise FieldDroppedError(lost)
        return written

    async def delete(self, slices: Sequence[ResourceSlice]) -> None:
        """Delete slices, but not later ones of the same names."""
        await self._run_concurrently([partial(self._delete, each) for each in slices])

    async def _create(self, new: ResourceSlice, keep: Callable[[ResourceSlice, ResourceSlice], None]) -> None:
        keep(new, await self._client.create(new))

    async def _update(
        self, old: ResourceSlice, new: ResourceSlice, keep: Callable[[ResourceSlice, ResourceSlice], None]
    ) -> None:
        keep(new, await self._client.patch_changes(old, new))

    async def _delete(self, each: ResourceSlice) -> None:
        with suppress(NotFoundError):
            await self._client.delete(
                ResourceSlice, each.metadata.name, options=DeleteOptions(uid=each.metadata.uid)
            )

    async def _run_concurrently(self, writes: Sequence[_Write]) -> None:
        """Run all writes, several at a time; then raise the first error."""
        semaphore = asyncio.Semaphore(self._max_concurrent)

        async def run_limited(write: _Write) -> None:
            async with semaphore:
                await write()

        results = await asyncio.gather(*map(run_limited, writes), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result


def _list_written(plan: PoolPlan) -> list[ResourceSlice]:
    return [*plan.creates, *(new for _old, new in plan.updates)]
