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
from dray.client.client import Client, Deletion
from dray.client.errors import Invalid, NotFound
from dray.client.object_refs import Selection
from dray.driver.publishing.dropped_fields import Dropped, FieldDropped, dropped_by, dropped_of, gates_of
from dray.driver.publishing.pool_plan import Plan

Left = dict[str, dict[str, ResourceSlice]]
"""By pool and name: slices as the server answered when they were written or found good."""

_Write = Callable[[], Awaitable[None]]


class Slices:
    """The slices of a driver on the server."""

    def __init__(self, client: Client, select: Selection, at_once: int) -> None:
        self._client, self._select, self._most = client, select, at_once
        self._proven: set[str] = set()

    async def standing(self) -> tuple[ResourceSlice, ...]:
        """As they are now."""
        return tuple((await self._client.list(ResourceSlice, select=self._select)).items)

    async def owner(self, node: str) -> OwnerRef | None:
        """The node, which takes its slices with it when it goes."""
        if not node:
            return None
        found = await self._client.get(Node, node)
        return OwnerRef(api_version="v1", kind="Node", name=node, uid=found.metadata.uid, controller=True)

    # --- asking before writing ---

    async def prove(self, plans: Sequence[Plan]) -> None:
        """Have the server show that it would keep what it was not yet seen to keep; else `FieldDropped`."""
        written = [each for plan in plans for each in _written(plan)]
        needed = frozenset[str]().union(*map(gates_of, written)) - self._proven
        lost = await self.rehearse(plans, needed)
        if lost:
            raise FieldDropped(lost)
        self._proven |= needed

    async def rehearse(self, plans: Sequence[Plan], gates: Collection[str]) -> tuple[Dropped, ...]:
        """What the server would drop, asked with one slice for each feature that is not proven."""
        left, lost = set(gates) - self._proven, list[Dropped]()
        for plan in plans:
            for old, new in (*((None, new) for new in plan.creates), *plan.updates):
                if left & gates_of(new):
                    left -= gates_of(new)
                    lost += await self._tried(old, new)
        return tuple(lost)

    async def _tried(self, old: ResourceSlice | None, new: ResourceSlice) -> tuple[Dropped, ...]:
        try:
            if old is None:
                return dropped_of(new, await self._client.create(new, dry_run=True))
            return dropped_of(new, await self._client.amend(old, new, dry_run=True))
        except Invalid as refused:
            lost = dropped_by(new, (cause.field for cause in refused.causes))
            if not lost:
                raise
            return lost

    # --- writing ---

    async def write(self, plans: Sequence[Plan]) -> Left:
        """Write the plans; all slices as they are then. `FieldDropped` when something was lost after all."""
        lost: list[Dropped] = []
        left: Left = {}

        def keep(sent: ResourceSlice, stored: ResourceSlice) -> None:
            lost.extend(dropped_of(sent, stored))
            left.setdefault(sent.spec.pool.name, {})[sent.metadata.name] = stored

        for plan in plans:
            for each in plan.wanted:
                left.setdefault(each.spec.pool.name, {})[each.metadata.name] = each
        in_the_way = {each.metadata.name for plan in plans for each in plan.creates}
        deletes = [each for plan in plans for each in plan.deletes]
        await self.delete([each for each in deletes if each.metadata.name in in_the_way])
        await self._at_once(
            [
                *(partial(self._create, new, keep) for plan in plans for new in plan.creates),
                *(partial(self._amend, old, new, keep) for plan in plans for old, new in plan.updates),
            ]
        )
        await self.delete([each for each in deletes if each.metadata.name not in in_the_way])
        if lost:
            self._proven.clear()
            raise FieldDropped(lost)
        return left

    async def delete(self, slices: Sequence[ResourceSlice]) -> None:
        """Delete slices, these and no later ones of their names."""
        await self._at_once([partial(self._delete, each) for each in slices])

    async def _create(self, new: ResourceSlice, keep: Callable[[ResourceSlice, ResourceSlice], None]) -> None:
        keep(new, await self._client.create(new))

    async def _amend(
        self, old: ResourceSlice, new: ResourceSlice, keep: Callable[[ResourceSlice, ResourceSlice], None]
    ) -> None:
        keep(new, await self._client.amend(old, new))

    async def _delete(self, each: ResourceSlice) -> None:
        with suppress(NotFound):
            await self._client.delete(ResourceSlice, each.metadata.name, how=Deletion(uid=each.metadata.uid))

    async def _at_once(self, writes: Sequence[_Write]) -> None:
        """Do all of them, several at a time; then raise what went wrong first."""
        turns = asyncio.Semaphore(self._most)

        async def in_turn(write: _Write) -> None:
            async with turns:
                await write()

        results = await asyncio.gather(*map(in_turn, writes), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result


def _written(plan: Plan) -> list[ResourceSlice]:
    return [*plan.creates, *(new for _old, new in plan.updates)]
