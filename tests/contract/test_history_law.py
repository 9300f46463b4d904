"""The law of the store: it is a dict with a history, and a watch is the difference of two states."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dray.store import (
    Committed,
    Delete,
    EventBatch,
    KeyAbsent,
    KeyHasValue,
    KeyUnchanged,
    Put,
    StoreEntry,
    StoreEvent,
    TxnConflict,
)
from dray.store.errors import CompactedError
from tests.contract.backends import Backend
from tests.contract.running import take
from tests.effort import effort

KEYS = st.sampled_from([b"a", b"a/1", b"a/2", b"b", b"\xff"])
PREFIXES = st.sampled_from([b"", b"a", b"a/", b"b", b"\xff", b"c"])
VALUES = st.sampled_from([b"", b"x", b"y" * 50])
WRITES = st.lists(
    st.one_of(st.builds(Put, KEYS, VALUES), st.builds(Delete, KEYS)), max_size=4, unique_by=lambda w: w.key
)
State = dict[bytes, StoreEntry]


def machine_for(backend: Backend) -> type[RuleBasedStateMachine]:
    class DictWithHistory(RuleBasedStateMachine):
        """Every state the store was in, by revision."""

        def __init__(self) -> None:
            super().__init__()
            self.loop = asyncio.new_event_loop()
            self.opening = backend.open()
            self.store = self.wait(self.opening.__aenter__())
            self.first = self.now = self.wait(self.store.get_revision())
            self.states: dict[int, State] = {self.now: {}}
            self.changes: list[EventBatch] = []
            self.compacted = 0

        def wait(self, action: Any) -> Any:
            return self.loop.run_until_complete(asyncio.wait_for(action, 20))

        def teardown(self) -> None:
            self.wait(self.opening.__aexit__(None, None, None))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

        @initialize(writes=WRITES)
        def begin(self, writes: list[Put | Delete]) -> None:
            self.write([], writes)

        def write(self, compares: list[Any], writes: list[Put | Delete]) -> None:
            outcome = self.wait(self.store.txn(compares, writes))
            state = self.states[self.now]
            broken = [compare for compare in compares if not true_of(compare, state.get(compare.key))]
            if broken:
                assert isinstance(outcome, TxnConflict)
                assert [(m.compare, m.current) for m in outcome.failed] == [
                    (c, state.get(c.key)) for c in broken
                ]
                return
            after, events = applied(state, writes, self.now + 1)
            if events:
                self.now += 1
                self.states[self.now] = after
                self.changes.append(EventBatch(self.now, events))
            assert outcome == Committed(self.now)

        @rule(writes=WRITES)
        def write_without_asking(self, writes: list[Put | Delete]) -> None:
            self.write([], writes)

        @rule(data=st.data(), writes=WRITES)
        def compare_and_write(self, data: st.DataObject, writes: list[Put | Delete]) -> None:
            key, other = data.draw(KEYS), data.draw(KEYS)
            known = [0, *(entry.mod_revision for entry in self.states[self.now].values())]
            revision = data.draw(st.sampled_from(known))
            compares = [KeyUnchanged(key, revision), KeyAbsent(key), KeyHasValue(other, data.draw(VALUES))]
            self.write(data.draw(st.lists(st.sampled_from(compares), unique=True, max_size=3)), writes)

        @rule(data=st.data(), prefix=PREFIXES, limit=st.none() | st.integers(1, 3))
        def read_the_past(self, data: st.DataObject, prefix: bytes, limit: int | None) -> None:
            at = data.draw(st.sampled_from(sorted(self.states)))
            after = data.draw(st.none() | KEYS)
            expected = [
                entry
                for key, entry in sorted(self.states[at].items())
                if key.startswith(prefix) and (after is None or key > after)
            ]
            try:
                page = self.wait(self.store.range(prefix, start_after=after, limit=limit, revision=at))
            except CompactedError:
                assert at < self.compacted
                return
            assert at >= self.compacted
            assert list(page.entries) == expected[:limit]
            assert page.more == (limit is not None and len(expected) > limit)
            assert page.revision == at
            for key in {b"a", b"b", *self.states[at]}:
                assert self.wait(self.store.get(key, at)) == self.states[at].get(key)

        @rule(data=st.data(), prefix=PREFIXES)
        def watch_from_the_past(self, data: st.DataObject, prefix: bytes) -> None:
            after = data.draw(st.sampled_from(sorted(self.states)))
            try:
                seen = self.wait(take(self.store, prefix, after, self.now))
            except CompactedError:
                assert after < self.compacted
                return
            assert after >= self.compacted
            assert seen == [
                EventBatch(batch.revision, events)
                for batch in self.changes
                if batch.revision > after
                and (events := tuple(e for e in batch.events if e.key.startswith(prefix)))
            ]

        @rule(data=st.data())
        def compact(self, data: st.DataObject) -> None:
            at = data.draw(st.sampled_from(sorted(self.states)))
            self.wait(self.store.compact(at))
            self.compacted = max(self.compacted, at)

        @invariant()
        def the_present_is_right(self) -> None:
            page = self.wait(self.store.range(b""))
            assert page.revision == self.now
            assert {entry.key: entry for entry in page.entries} == self.states[self.now]

    return DictWithHistory


def true_of(compare: Any, entry: StoreEntry | None) -> bool:
    if isinstance(compare, KeyAbsent):
        return entry is None
    if isinstance(compare, KeyHasValue):
        return entry is not None and entry.value == compare.value
    return compare.mod_revision == (entry.mod_revision if entry else 0)


def applied(state: State, writes: list[Put | Delete], revision: int) -> tuple[State, tuple[StoreEvent, ...]]:
    after, events = dict(state), list[StoreEvent]()
    for write in writes:
        old = after.get(write.key)
        if isinstance(write, Put):
            created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
            after[write.key] = StoreEntry(write.key, write.value, created, revision, version)
            events.append(StoreEvent(write.key, revision, after[write.key], old))
        elif old is not None:
            del after[write.key]
            events.append(StoreEvent(write.key, revision, None, old))
    return after, tuple(events)


EXAMPLES = {"memory": 0.3, "sqlite": 0.12, "etcd": 0.08}


def test_the_store_is_a_dict_with_a_history(backend: Backend):
    run_state_machine_as_test(
        machine_for(backend),
        settings=effort(EXAMPLES[backend.name], stateful_step_count=25),
    )
