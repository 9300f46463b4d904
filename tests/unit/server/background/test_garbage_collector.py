"""The index of the garbage collector keeps nothing of objects that are gone, in whatever order they went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from dray.server.background.garbage_collector import GarbageCollector

Change = tuple[Any, Any]


class Cache:
    """A cache that passes changes on."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Any, Any], None]] = []

    def add_listener(self, _kind: Any, listener: Callable[[Any, Any], None]) -> None:
        self._listeners = [listener]

    def get(self, *_names: str) -> None:
        return None

    def change(self, old: Any, new: Any) -> None:
        for listener in self._listeners:
            listener(old, new)


def build(uid: str, *owners: str, version: int = 1) -> Any:
    references = tuple({"uid": owner} for owner in owners)
    metadata = SimpleNamespace(uid=uid, owner_references=references, deletion_timestamp="", version=version)
    return SimpleNamespace(metadata=metadata, key=uid.encode(), namespace="default")


POD, CLAIM, NEWER = build("pod"), build("claim", "pod"), build("claim", "pod", version=2)
DELETE_POD: Change = (POD, None)
CHANGE_CLAIM: Change = (CLAIM, NEWER)
DELETE_CLAIM: Change = (NEWER, None)


@pytest.mark.parametrize(
    "ending",
    [
        order
        for order in permutations((DELETE_POD, CHANGE_CLAIM, DELETE_CLAIM))
        if order.index(CHANGE_CLAIM) < order.index(DELETE_CLAIM)
    ],
    ids=["pod first", "pod between", "pod last"],
)
def test_nothing_is_left_of_an_owner_and_its_dependent(ending: tuple[Change, ...]):
    cache: Any = Cache()
    collector = GarbageCollector(cache, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    for change in ((None, POD), (None, CLAIM), *ending):
        cache.change(*change)
    assert (collector._uids, collector._dependents) == ({}, {})


@pytest.mark.parametrize("table", ["_left_to_collector", "_left_to_controller"])
def test_nothing_is_left_of_an_object_that_was_left_to_others(table: str):
    async def work() -> None:
        cache: Any = Cache()
        collector = GarbageCollector(cache, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
        cache.change(None, CLAIM)
        deferred = getattr(collector, table)
        deferred.restart(CLAIM.key)
        assert len(deferred) == 1
        cache.change(CLAIM, None)
        assert len(deferred) == 0

    asyncio.run(work())
