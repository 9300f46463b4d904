"""What every store promises about watches: ordered, unique, whole, resumable, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from dray.store import Delete, EventBatch, Put, Store
from dray.store.errors import CompactedError, SlowWatcherError, StoreClosedError
from tests.contract.backends import Backend
from tests.contract.running import take
from tests.contract.test_reads_and_writes import put


async def write_some(store: Store, rounds: int) -> int:
    """Puts, changes and deletes under two prefixes, some together; returns the last revision."""
    for number in range(rounds):
        key = b"a/%d" % (number % 5)
        if number % 7 == 6:
            await store.txn([], [Delete(key), Put(b"b/%d" % number, b"")])
        else:
            await store.txn([], [Put(key, b"%d" % number), Put(b"a/all", b"%d" % number)])
    return await store.get_revision()


def shape(batches: list[EventBatch]) -> list[tuple[int, bytes, bytes | None]]:
    return [(e.revision, e.key, e.entry.value if e.entry else None) for b in batches for e in b.events]


async def caught_up(batches: AsyncGenerator[EventBatch, None]) -> None:
    """Wait for the first bookmark: from here on the watch follows the present."""
    assert (await anext(batches)).events == ()


async def test_a_watch_has_the_new_and_the_previous_state(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        one = await put(store, b"a", b"1")
        two = await put(store, b"a", b"2")
        gone = (await store.txn([], [Delete(b"a")])).revision
        seen = await take(store, b"", start, gone)
        created, changed, deleted = (batch.events[0] for batch in seen)
        assert [batch.revision for batch in seen] == [one, two, gone]
        assert created.entry == await store.get(b"a", one)
        assert created.previous is None
        assert (changed.entry, changed.previous) == (await store.get(b"a", two), created.entry)
        assert (deleted.key, deleted.entry, deleted.previous) == (b"a", None, changed.entry)


async def test_a_transaction_arrives_whole_and_in_its_order(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        await store.txn([], [Put(b"c", b""), Put(b"a", b""), Put(b"b", b""), Put(b"x/1", b"")])
        end = (await store.txn([], [Delete(b"a"), Put(b"c", b"2")])).revision
        seen = await take(store, b"", start, end)
        assert [[e.key for e in batch.events] for batch in seen] == [[b"c", b"a", b"b", b"x/1"], [b"a", b"c"]]
        assert [[e.key for e in batch.events] for batch in await take(store, b"x/", start, end)] == [[b"x/1"]]


async def test_watchers_of_past_and_present_see_the_same(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        live = asyncio.create_task(take(store, b"a/", start, start + 40))
        await asyncio.sleep(0)
        end = await write_some(store, 40)
        assert end == start + 40
        from_live, from_past = await live, await take(store, b"a/", start, end)
        assert from_live == from_past
        revisions = [batch.revision for batch in from_live]
        assert revisions == sorted(set(revisions))


async def test_a_watch_resumes_anywhere_without_gap_or_repetition(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        end = await write_some(store, 15)
        whole = await take(store, b"", start, end)
        assert len(whole) == 15
        for place in range(start, end):
            rest = await take(store, b"", place, end)
            assert rest == [batch for batch in whole if batch.revision > place]


async def test_reading_and_then_watching_misses_nothing_while_others_write(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        writer = asyncio.create_task(write_some(store, 60))
        while await store.get_revision() < start + 20:
            await asyncio.sleep(0.001)
        page = await store.range(b"")
        state = {entry.key: entry.value for entry in page.entries}
        end = await writer
        for _, key, value in shape(await take(store, b"", page.revision, end)):
            if value is None:
                del state[key]
            else:
                state[key] = value
        assert state == {entry.key: entry.value for entry in (await store.range(b"")).entries}


async def test_bookmarks_have_the_progress_of_an_idle_watch(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        await put(store, b"seen", b"")
        elsewhere = await put(store, b"other", b"")
        async with aclosing(store.watch(b"seen", start, bookmarks=0.05)) as batches:
            first = await anext(batches)
            assert [event.key for event in first.events] == [b"seen"]
            reached = 0
            while reached < elsewhere:
                bookmark = await anext(batches)
                assert bookmark.events == ()
                assert bookmark.revision >= reached
                reached = bookmark.revision
            later = await put(store, b"seen", b"2")
            while not (batch := await anext(batches)).events:
                assert batch.revision <= later
            assert batch.revision == later


async def test_without_bookmarks_only_changes_arrive(backend: Backend):
    async with (
        backend.open() as store,
        aclosing(store.watch(b"a", await store.get_revision())) as batches,
        aclosing(store.watch(b"b", await store.get_revision())) as others,
    ):
        waiting = asyncio.ensure_future(anext(batches))
        await put(store, b"b", b"")
        assert [event.key for event in (await anext(others)).events] == [b"b"]
        assert not waiting.done()
        await put(store, b"a", b"")
        assert [event.key for event in (await waiting).events] == [b"a"]


async def test_a_watch_after_a_compacted_revision_is_refused(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        end = await write_some(store, 10)
        middle = start + 5
        whole = await take(store, b"", start, end)
        await store.compact(middle)
        for place in (0, start, middle - 1):
            with pytest.raises(CompactedError):
                await take(store, b"", place, end)
        # What was kept is told in full, with the values from before the cut.
        assert await take(store, b"", middle, end) == [b for b in whole if b.revision > middle]


async def test_a_live_watch_does_not_mind_compaction(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        async with aclosing(store.watch(b"", start, bookmarks=0.02)) as batches:
            await caught_up(batches)
            await put(store, b"a", b"1")
            await store.compact(await put(store, b"a", b"2"))
            await put(store, b"a", b"3")
            values = list[bytes]()
            while len(values) < 3:
                values += [event.entry.value for event in (await anext(batches)).events if event.entry]
            assert values == [b"1", b"2", b"3"]


async def test_a_slow_watcher_is_cut_off_and_may_resume(backend: Backend):
    async with backend.open(buffered_events=10) as store:
        start = await store.get_revision()
        async with aclosing(store.watch(b"", start, bookmarks=0.02)) as batches:
            await caught_up(batches)
            for number in range(50):
                await put(store, b"a", b"%d" % number)
            seen = [start]

            async def read_slowly() -> None:
                async for batch in batches:
                    seen.append(batch.revision)
                    # A reader this slow meets the cut, however fast the changes come in.
                    await asyncio.sleep(0.01)

            with pytest.raises(SlowWatcherError) as cut:
                await read_slowly()
            handed_out = seen[-1]
            assert cut.value.revision == handed_out
        rest = await take(store, b"", handed_out, start + 50)
        assert [batch.revision for batch in rest] == list(range(handed_out + 1, start + 51))


async def test_a_watcher_that_reads_a_long_past_slowly_is_not_cut_off(backend: Backend):
    async with backend.open(buffered_events=10) as store:
        start = await store.get_revision()
        end = await write_some(store, 50)
        assert len(await take(store, b"", start, end)) == 50


async def test_closing_the_store_ends_its_watches(backend: Backend):
    async with backend.open() as store:
        batches = store.watch(b"", await store.get_revision())
        waiting = asyncio.ensure_future(anext(batches))
        await put(store, b"a", b"")
        await waiting
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreClosedError):
            await waiting


async def test_two_watchers_do_not_disturb_each_other(backend: Backend):
    async with backend.open() as store:
        start = await store.get_revision()
        async with aclosing(store.watch(b"", start)) as one:
            waiting = asyncio.ensure_future(anext(one))
            await put(store, b"a", b"1")
            await waiting
            async with aclosing(store.watch(b"", start)) as two:
                assert (await anext(two)).events[0].key == b"a"
            await put(store, b"b", b"2")
            assert (await anext(one)).events[0].key == b"b"
