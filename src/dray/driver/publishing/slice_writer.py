"""Reading and writing the slices of a driver, as plans say.

Theory of operation: before a feature is used for the first time, one slice that needs it is written as a dry
run; what comes back shows whether the server keeps it. So nothing harmful is ever published: devices without
their counters could be given out twice. New and changed slices are written first and old ones deleted last,
so that a pool is there until the next generation of it is. Every answer is compared once more.
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
"""By pool and name: slices as the server answered when they were written or found good."""

_Write = Callable[[], Awaitable[None]]


class SliceWriter:
    """The slices of a driver on the server."""

    def __init__(self, client: Client, selection: ObjectSelector, max_concurrent: int) -> None:
        self._client, self._selection, self._max_concurrent = client, selection, max_concurrent
        self._verified_gates: set[str] = set()

    async def list_slices(self) -> tuple[ResourceSlice, ...]:
        """As they are now."""
        return tuple((await self._client.list(ResourceSlice, selector=self._selection)).items)

    async def get_owner(self, node: str) -> OwnerRef | None:
        """The node, which takes its slices with it when it goes."""
        if not node:
            return None
        found = await self._client.get(Node, node)
        return OwnerRef(api_version="v1", kind="Node", name=node, uid=found.metadata.uid, controller=True)

    # --- asking before writing ---

    async def verify_fields_kept(self, plans: Sequence[PoolPlan]) -> None:
        """Check by dry run that the server keeps the fields in use; else raise `FieldDroppedError`."""
        written = [each for plan in plans for each in _list_written(plan)]
        needed = frozenset[str]().union(*map(find_required_gates, written)) - self._verified_gates
        lost = await self.dry_run(plans, needed)
        if lost:
            raise FieldDroppedError(lost)
        self._verified_gates |= needed

    async def dry_run(
        self, plans: Sequence[PoolPlan], gates: Collection[str]
    ) -> tuple[DroppedSliceField, ...]:
        """What the server would drop, asked with one slice for each feature that is not proven."""
        left, lost = set(gates) - self._verified_gates, list[DroppedSliceField]()
        for plan in plans:
            for old, new in (*((None, new) for new in plan.creates), *plan.updates):
                if left & find_required_gates(new):
                    left -= find_required_gates(new)
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
        """Write the plans; all slices as they are then. `FieldDroppedError` when something was lost after
        all.
        """
        lost: list[DroppedSliceField] = []
        left: WrittenSlices = {}

        def keep(sent: ResourceSlice, stored: ResourceSlice) -> None:
            lost.extend(find_dropped_fields(sent, stored))
            left.setdefault(sent.spec.pool.name, {})[sent.metadata.name] = stored

        for plan in plans:
            for each in plan.wanted:
                left.setdefault(each.spec.pool.name, {})[each.metadata.name] = each
        in_the_way = {each.metadata.name for plan in plans for each in plan.creates}
        deletes = [each for plan in plans for each in plan.deletes]
        await self.delete([each for each in deletes if each.metadata.name in in_the_way])
        await self._run_concurrently(
            [
                *(partial(self._create, new, keep) for plan in plans for new in plan.creates),
                *(partial(self._update, old, new, keep) for plan in plans for old, new in plan.updates),
            ]
        )
        await self.delete([each for each in deletes if each.metadata.name not in in_the_way])
        if lost:
            self._verified_gates.clear()
            raise FieldDroppedError(lost)
        return left

    async def delete(self, slices: Sequence[ResourceSlice]) -> None:
        """Delete slices, these and no later ones of their names."""
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
        """Do all of them, several at a time; then raise what went wrong first."""
        turns = asyncio.Semaphore(self._max_concurrent)

        async def in_turn(write: _Write) -> None:
            async with turns:
                await write()

        results = await asyncio.gather(*map(in_turn, writes), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result


def _list_written(plan: PoolPlan) -> list[ResourceSlice]:
    return [*plan.creates, *(new for _old, new in plan.updates)]
