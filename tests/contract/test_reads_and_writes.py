"""What every store promises about transactions, entries and reading the past."""

from __future__ import annotations

import asyncio

import pytest

from dray.store import (
    Committed,
    Compare,
    Delete,
    FailedCompare,
    KeyAbsent,
    KeyHasValue,
    KeyUnchanged,
    Put,
    Store,
    TxnConflict,
)
from dray.store.errors import CompactedError, FutureRevisionError, StoreClosedError
from tests.contract.backends import Backend


async def put(store: Store, key: bytes, value: bytes) -> int:
    outcome = await store.txn([], [Put(key, value)])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def test_an_entry_has_its_revisions_and_version(backend: Backend):
    async with backend.open() as store:
        created = await put(store, b"a", b"1")
        changed = await put(store, b"a", b"2")
        entry = await store.get(b"a")
        assert entry is not None
        assert (entry.key, entry.value, entry.version) == (b"a", b"2", 2)
        assert (entry.create_revision, entry.mod_revision) == (created, changed)
        assert changed == created + 1 == await store.get_revision()


async def test_a_recreated_key_starts_with_version_one(backend: Backend):
    async with backend.open() as store:
        await put(store, b"a", b"1")
        await store.txn([], [Delete(b"a")])
        assert await store.get(b"a") is None
        back = await put(store, b"a", b"2")
        entry = await store.get(b"a")
        assert entry is not None
        assert (entry.version, entry.create_revision) == (1, back)


async def test_all_writes_of_a_transaction_have_one_revision(backend: Backend):
    async with backend.open() as store:
        await put(store, b"old", b"")
        outcome = await store.txn([], [Put(b"a", b"1"), Put(b"b", b"2"), Delete(b"old")])
        page = await store.range(b"")
        assert [(e.key, e.mod_revision) for e in page.entries] == [
            (b"a", outcome.revision),
            (b"b", outcome.revision),
        ]
        assert page.revision == outcome.revision


async def test_a_failed_compare_prevents_every_write_and_returns_the_entry(backend: Backend):
    async with backend.open() as store:
        at = await put(store, b"a", b"1")
        here = await store.get(b"a")
        outcome = await store.txn(
            [
                KeyUnchanged(b"a", at),
                KeyAbsent(b"a"),
                KeyHasValue(b"a", b"2"),
                KeyUnchanged(b"a", 0),
                KeyHasValue(b"b", b""),
            ],
            [Put(b"a", b"3"), Put(b"c", b"")],
        )
        assert outcome == TxnConflict(
            at,
            (
                FailedCompare(KeyAbsent(b"a"), here),
                FailedCompare(KeyHasValue(b"a", b"2"), here),
                FailedCompare(KeyUnchanged(b"a", 0), here),
                FailedCompare(KeyHasValue(b"b", b""), None),
            ),
        )
        assert (await store.range(b"")).entries == (here,)
        assert await store.get_revision() == at


async def test_compares_that_hold_let_the_writes_through(backend: Backend):
    async with backend.open() as store:
        at = await put(store, b"a", b"1")
        compares: list[Compare] = [
            KeyUnchanged(b"a", at),
            KeyHasValue(b"a", b"1"),
            KeyAbsent(b"b"),
            KeyUnchanged(b"c", 0),
        ]
        assert await store.txn(compares, [Put(b"b", b"")]) == Committed(at + 1)


async def test_writes_that_change_nothing_take_no_revision(backend: Backend):
    async with backend.open() as store:
        at = await put(store, b"a", b"1")
        assert await store.txn([], [Delete(b"b")]) == Committed(at)
        assert await store.txn([KeyHasValue(b"a", b"1")], []) == Committed(at)
        assert await put(store, b"a", b"1") == at + 1


@pytest.mark.parametrize("writes", [[Put(b"a", b"1"), Delete(b"a")], [Put(b"", b"1")]])
async def test_a_transaction_that_makes_no_sense_is_a_mistake_of_the_caller(backend: Backend, writes):
    async with backend.open() as store:
        before = await store.get_revision()
        with pytest.raises(ValueError):
            await store.txn([], writes)
        assert await store.get_revision() == before


async def test_a_prefix_ends_where_the_next_one_begins(backend: Backend):
    async with backend.open() as store:
        keys = [b"a", b"a/", b"a/b", b"a/\xff", b"a/\xff\xff", b"a0", b"\xff", b"\xff\xff\x01"]
        await store.txn([], [Put(key, key) for key in keys])
        assert [e.key for e in (await store.range(b"a/")).entries] == [
            b"a/",
            b"a/b",
            b"a/\xff",
            b"a/\xff\xff",
        ]
        assert [e.key for e in (await store.range(b"\xff")).entries] == [b"\xff", b"\xff\xff\x01"]
        assert [e.key for e in (await store.range(b"")).entries] == sorted(keys)


async def test_pages_show_one_state_while_others_write(backend: Backend):
    async with backend.open() as store:
        for number in range(20):
            await put(store, b"k%02d" % number, b"old")
        pages = [await store.range(b"k", limit=6)]
        while pages[-1].more:
            await store.txn([], [Put(b"k%02d" % (len(pages) * 5), b"new"), Delete(b"k19"), Put(b"k055", b"")])
            last = pages[-1].entries[-1].key
            pages.append(await store.range(b"k", start_after=last, limit=6, revision=pages[0].revision))
        entries = [entry for page in pages for entry in page.entries]
        assert [e.key for e in entries] == [b"k%02d" % n for n in range(20)]
        assert {e.value for e in entries} == {b"old"}
        assert {page.revision for page in pages} == {pages[0].revision}
        assert [len(page.entries) for page in pages] == [6, 6, 6, 2]


async def test_a_full_last_page_has_no_more(backend: Backend):
    async with backend.open() as store:
        await store.txn([], [Put(b"a", b""), Put(b"b", b"")])
        assert not (await store.range(b"", limit=2)).more
        assert (await store.range(b"", limit=1)).more
        assert (await store.range(b"", start_after=b"b")).entries == ()


async def test_the_past_can_be_read(backend: Backend):
    async with backend.open() as store:
        one = await put(store, b"a", b"1")
        two = (await store.txn([], [Delete(b"a"), Put(b"b", b"")])).revision
        was = await store.get(b"a", one)
        assert was is not None
        assert was.value == b"1"
        assert await store.get(b"a", two) is None
        assert await store.get(b"b", one) is None
        assert (await store.range(b"", revision=one)).entries == (was,)


async def test_the_future_cannot_be_read(backend: Backend):
    async with backend.open() as store:
        later = await put(store, b"a", b"1") + 1
        with pytest.raises(FutureRevisionError):
            await store.get(b"a", later)
        with pytest.raises(FutureRevisionError):
            await store.range(b"", revision=later)
        with pytest.raises(FutureRevisionError):
            await store.compact(later)
        with pytest.raises(FutureRevisionError):
            await anext(store.watch(b"", later))


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"revision": 0}, {"revision": -1}])
async def test_a_read_that_makes_no_sense_is_a_mistake_of_the_caller(backend: Backend, wrong):
    async with backend.open() as store:
        with pytest.raises(ValueError):
            await store.range(b"", **wrong)


async def test_compaction_forgets_the_past_and_keeps_the_rest(backend: Backend):
    async with backend.open() as store:
        await put(store, b"a", b"1")
        await store.txn([], [Put(b"gone", b""), Put(b"stays", b"s")])
        old = await put(store, b"a", b"2")
        await store.txn([], [Delete(b"gone")])
        kept = await put(store, b"a", b"3")
        new = await put(store, b"a", b"4")
        state = await store.range(b"", revision=kept)
        await store.compact(kept)
        with pytest.raises(CompactedError) as raised:
            await store.get(b"a", old)
        assert raised.value.revision == old
        with pytest.raises(CompactedError):
            await store.range(b"", revision=kept - 1)
        assert await store.range(b"", revision=kept) == state
        assert [e.value for e in (await store.range(b"")).entries] == [b"4", b"s"]
        assert await store.get_revision() == new
        # Doing it again, or less of it, is no mistake: several servers may compact one store.
        await store.compact(kept)
        await store.compact(old)


async def test_no_update_is_lost_when_many_count_up(backend: Backend):
    async with backend.open() as store:
        await put(store, b"n", b"0")
        conflicts = 0

        async def count_up(times: int) -> None:
            nonlocal conflicts
            while times:
                seen = await store.get(b"n")
                assert seen is not None
                higher = b"%d" % (int(seen.value) + 1)
                await asyncio.sleep(0)
                outcome = await store.txn([KeyUnchanged(b"n", seen.mod_revision)], [Put(b"n", higher)])
                conflicts += isinstance(outcome, TxnConflict)
                times -= isinstance(outcome, Committed)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(count_up(5))
        final = await store.get(b"n")
        assert final is not None
        assert (final.value, final.version) == (b"40", 41)
        assert conflicts, "nobody met anybody: the test proves nothing"


async def test_only_one_of_many_creates_a_key(backend: Backend):
    async with backend.open() as store:
        outcomes = await asyncio.gather(
            *(store.txn([KeyAbsent(b"a")], [Put(b"a", b"%d" % n), Put(b"by/%d" % n, b"")]) for n in range(16))
        )
        winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
        assert len(winners) == 1
        assert [e.key for e in (await store.range(b"by/")).entries] == [b"by/%d" % winners[0]]


async def test_a_closed_store_raises(backend: Backend):
    async with backend.open() as store:
        await store.close()
        with pytest.raises(StoreClosedError):
            await store.get(b"a")
        with pytest.raises(StoreClosedError):
            await store.txn([], [Put(b"a", b"")])
        with pytest.raises(StoreClosedError):
            await anext(store.watch(b"", 0))
