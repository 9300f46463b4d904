"""The broadcaster: watchers are indexed by prefix, and a batch costs only those it concerns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.store import EventBatch, StoreEntry, StoreEvent
from dray.store.errors import SlowWatcherError, StoreClosedError
from dray.store.watch_broadcaster import RequiredField, WatchBroadcaster, filter_batch

PIECES = st.lists(st.sampled_from([b"/", b"a", b"b", b"ab", b"\xff"]), max_size=5).map(b"".join)


class Nothing:
    """A history in which nothing happened."""

    async def check_readable(self, revision: int) -> None:
        pass

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        return [EventBatch(up_to)]


@given(st.lists(PIECES, max_size=6), st.lists(st.lists(PIECES, min_size=1, max_size=4), max_size=6))
def test_every_watcher_gets_exactly_what_begins_with_its_prefix(prefixes, changes):
    batches = [
        EventBatch(2 + n, tuple(StoreEvent(key, 2 + n, None, None) for key in keys))
        for n, keys in enumerate(changes)
    ]

    async def run_case() -> None:
        hub = WatchBroadcaster(1)
        seen: list[list[EventBatch]] = [[] for _ in prefixes]

        async def follow(number: int) -> None:
            async with aclosing(hub.watch(Nothing(), prefixes[number], 1, None)) as watch:
                async for batch in watch:
                    seen[number].append(batch)

        watching = [asyncio.create_task(follow(number)) for number in range(len(prefixes))]
        await asyncio.sleep(0)
        hub.publish(batches)
        hub.close(StoreClosedError("done"))
        await asyncio.gather(*watching, return_exceptions=True)
        for prefix, got in zip(prefixes, seen, strict=True):
            assert got == [part for batch in batches if (part := filter_batch(batch, prefix)).events]

    asyncio.run(run_case())


def build_entry(key: bytes, value: bytes | None) -> StoreEntry | None:
    return None if value is None else StoreEntry(key, value, 1, 1, 1)


VALUES = st.sampled_from([None, b"x", b"y", b"z"])
CHANGE = st.tuples(st.sampled_from([b"a/1", b"a/2", b"b/1"]), VALUES, VALUES)


@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a/", b"b/"]), st.sampled_from("xyw")), max_size=6),
    st.lists(st.lists(CHANGE, min_size=1, max_size=4), max_size=6),
)
def test_a_watcher_of_a_value_gets_the_changes_of_what_has_or_had_it(wanted, changes):
    batches = [
        EventBatch(
            2 + n,
            tuple(
                StoreEvent(key, 2 + n, build_entry(key, now), build_entry(key, before))
                for key, now, before in batch
            ),
        )
        for n, batch in enumerate(changes)
    ]

    async def run_case() -> None:
        reads: list[str] = []

        def list_values(field: str, entry: StoreEntry) -> list[str]:
            reads.append(field)
            return [entry.value.decode()]

        hub = WatchBroadcaster(1, list_values=list_values)
        seen: list[list[EventBatch]] = [[] for _ in wanted]

        async def follow(number: int) -> None:
            prefix, value = wanted[number]
            required = RequiredField("color", value)
            async with aclosing(hub.watch(Nothing(), prefix, 1, None, required=required)) as watch:
                async for batch in watch:
                    seen[number].append(batch)

        watching = [asyncio.create_task(follow(number)) for number in range(len(wanted))]
        await asyncio.sleep(0)
        hub.publish(batches)
        # One prefix reads a field once for each state, however many watchers it has.
        states = sum(2 for batch in changes for _ in batch)
        assert len(reads) <= states * len({prefix for prefix, _ in wanted})
        hub.close(StoreClosedError("done"))
        await asyncio.gather(*watching, return_exceptions=True)
        for (prefix, value), got in zip(wanted, seen, strict=True):
            assert got == list(select_batches(batches, prefix, value.encode()))
        assert not hub._watchers

    asyncio.run(run_case())


def select_batches(batches: Sequence[EventBatch], prefix: bytes, value: bytes) -> Iterator[EventBatch]:
    for batch in batches:
        events = tuple(
            event
            for event in batch.events
            if event.key.startswith(prefix)
            and value in [entry.value for entry in (event.entry, event.previous) if entry is not None]
        )
        if events:
            yield EventBatch(batch.revision, events)


async def test_watchers_that_left_leave_nothing_behind():
    hub = WatchBroadcaster(1)
    for prefix in (b"a/", b"a", b"", b"a/b"):
        watch = hub.watch(Nothing(), prefix, 1, 0.001)
        assert await anext(watch) == EventBatch(1)
        await watch.aclose()
    assert not hub._watchers
    assert not hub._unaligned_lengths


async def test_waiting_for_a_revision_ends_when_it_comes_or_when_the_store_ends():
    hub = WatchBroadcaster(1)
    await hub.wait_for_revision(1)
    waiting = asyncio.create_task(hub.wait_for_revision(3))
    ending = asyncio.create_task(hub.wait_for_revision(9))
    await asyncio.sleep(0)
    hub.publish([EventBatch(2)])
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.publish([EventBatch(3)])
    await waiting
    hub.close(StoreClosedError("the store is closed"))
    with pytest.raises(StoreClosedError):
        await ending
    with pytest.raises(StoreClosedError):
        await hub.wait_for_revision(10)


async def test_a_bookmark_is_never_ahead_of_a_change_that_came_with_it():
    """A change that arrives in the very moment of a bookmark must not be delivered after it."""
    hub, patience = WatchBroadcaster(1), 0.02
    change = EventBatch(2, (StoreEvent(b"a/b", 2, None, None),))
    async with aclosing(hub.watch(Nothing(), b"a/", 1, patience)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        # Both are due by the time the loop looks again: first the alarm of the watcher, then the change.
        asyncio.get_running_loop().call_later(patience + 0.001, hub.publish, [change])
        time.sleep(2 * patience)
        assert await waiting == change
        assert await anext(watch) == EventBatch(2)


async def test_a_watcher_that_was_cut_off_gets_no_bookmark_instead():
    hub, patience = WatchBroadcaster(1, max_events=1), 0.02
    changes = [EventBatch(revision, (StoreEvent(b"a/b", revision, None, None),)) for revision in (2, 3)]
    async with aclosing(hub.watch(Nothing(), b"a/", 1, patience)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(patience + 0.001, hub.publish, changes)
        time.sleep(2 * patience)
        with pytest.raises(SlowWatcherError):
            await waiting
