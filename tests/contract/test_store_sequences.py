"""Sequences of transactions: all steps or none, each with a revision of its own."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import pytest

from dray.store import (
    Committed,
    Delete,
    KeyAbsent,
    KeyUnchanged,
    Put,
    SequenceCommitted,
    SequenceConflict,
    SequenceStore,
    TxnStep,
    build_step_revision,
)
from tests.contract.backends import Backend


def step(*writes, compares=()):
    return TxnStep(tuple(compares), tuple(writes))


def run(backend: Backend, check):
    async def opened() -> None:
        async with backend.open() as store:
            if not isinstance(store, SequenceStore):
                pytest.skip(f"{backend.name} gives one revision to all that it commits together")
            await check(store)

    asyncio.run(opened())


async def read_all(store):
    page = await store.range(b"/")
    return page.revision, page.entries


async def read_history(store, after, up_to):
    batches = []
    async with aclosing(store.watch(b"/", after, bookmarks=0.01)) as watched:
        async for batch in watched:
            batches += [batch] if batch.events else []
            if batch.revision >= up_to:
                return batches
    raise AssertionError("unreachable")


def test_each_step_has_a_revision_and_a_batch_of_its_own(backend: Backend):
    async def check(store):
        begin = await store.get_revision()
        done = await store.txn_sequence(
            [step(Put(b"/a", b"1"), Put(b"/b", b"1")), step(Put(b"/a", b"2")), step(Delete(b"/b"))]
        )
        assert done == SequenceCommitted((begin + 1, begin + 2, begin + 3))
        entry = await store.get(b"/a")
        assert (entry.value, entry.create_revision, entry.mod_revision, entry.version) == (
            b"2",
            begin + 1,
            begin + 2,
            2,
        )
        assert await store.get(b"/b") is None
        batches = await read_history(store, begin, begin + 3)
        assert [(batch.revision, [event.key for event in batch.events]) for batch in batches] == [
            (begin + 1, [b"/a", b"/b"]),
            (begin + 2, [b"/a"]),
            (begin + 3, [b"/b"]),
        ]

    run(backend, check)


def test_a_compare_that_fails_in_a_later_step_undoes_all(backend: Backend):
    async def check(store):
        await store.txn([], [Put(b"/there", b"x"), Put(b"/kept", b"x")])
        before = await read_all(store)
        done = await store.txn_sequence(
            [
                step(Put(b"/new", b"1"), Put(b"/kept", b"y")),
                step(Delete(b"/kept"), compares=[KeyAbsent(b"/there")]),
            ]
        )
        assert isinstance(done, SequenceConflict)
        assert (done.revision, done.step) == (before[0], 1)
        assert [each.current and each.current.value for each in done.failed] == [b"x"]
        assert await read_all(store) == before
        # Nothing of it is left in what the store remembers for the next transaction, either.
        after = await store.txn([KeyAbsent(b"/new"), KeyUnchanged(b"/kept", before[0])], [Put(b"/new", b"2")])
        assert after == Committed(before[0] + 1)
        assert len(await read_history(store, before[0], after.revision)) == 1

    run(backend, check)


def test_a_step_can_rely_on_the_revision_of_an_earlier_one(backend: Backend):
    async def check(store):
        relies = KeyUnchanged(b"/row", build_step_revision(0))
        steps = [step(Put(b"/row", b"1")), step(Put(b"/row", b"2"), compares=[relies])]
        assert isinstance(await store.txn_sequence(steps), SequenceCommitted)
        again = [*steps, step(Put(b"/row", b"3"), compares=[relies])]
        refused = await store.txn_sequence(again)
        assert isinstance(refused, SequenceConflict)
        assert refused.step == 2
        assert (await store.get(b"/row")).value == b"2"

    run(backend, check)


def test_a_step_cannot_rely_on_itself_or_on_a_later_one(backend: Backend):
    async def check(store):
        for later in (0, 1):
            relies = KeyUnchanged(b"/row", build_step_revision(later))
            with pytest.raises(ValueError, match=f"step 0 of a sequence compares with step {later}"):
                await store.txn_sequence([step(compares=[relies]), step()])

    run(backend, check)


def test_a_step_without_a_change_has_the_revision_before_it(backend: Backend):
    async def check(store):
        begin = await store.get_revision()
        done = await store.txn_sequence([step(Delete(b"/none")), step(Put(b"/a", b"1")), step()])
        assert done == SequenceCommitted((begin, begin + 1, begin + 1))
        assert await store.txn_sequence([]) == SequenceCommitted(())

    run(backend, check)


@pytest.mark.parametrize("seed", range(5))
def test_a_sequence_leaves_the_history_of_single_transactions(backend: Backend, seed):
    """Random sequences on one store, and their steps one by one on another: the same entries and history."""
    chance = random.Random(seed)
    keys = [b"/a", b"/b", b"/c", b"/d"]

    def build_write(key):
        return Delete(key) if chance.random() < 0.3 else Put(key, b"%d" % chance.randrange(99))

    def build_step():
        chosen = chance.sample(keys, chance.randint(1, 3))
        return step(
            *(
                Delete(key) if chance.random() < 0.3 else Put(key, b"%d" % chance.randrange(99))
                for key in chosen
            )
        )

    sequences = [[build_step() for _ in range(chance.randint(1, 4))] for _ in range(30)]

    async def check(store):
        begin = await store.get_revision()
        await asyncio.gather(*(store.txn_sequence(steps) for steps in sequences))
        async with backend.open() as single:
            for steps in sequences:
                for each in steps:
                    await single.txn(each.compares, each.writes)
            found, expected = await read_all(store), await read_all(single)
            assert found == expected
            assert await read_history(store, begin, found[0]) == await read_history(single, begin, found[0])

    run(backend, check)


def test_a_sequence_is_there_after_the_store_is_opened_again(backend: Backend, tmp_path):
    if backend.name != "sqlite":
        pytest.skip(f"{backend.name} is opened empty")
    from dray.store.sqlite.store import SqliteStore

    async def check() -> None:
        path = tmp_path / "again.db"
        async with await SqliteStore.open(path) as store:
            done = await store.txn_sequence([step(Put(b"/a", b"1")), step(Put(b"/b", b"2"))])
            assert isinstance(done, SequenceCommitted)
            before = await read_all(store)
        async with await SqliteStore.open(path) as store:
            assert await read_all(store) == before
            assert [batch.revision for batch in await read_history(store, 1, before[0])] == list(
                done.revisions
            )

    asyncio.run(check())
