"""The protocol of a store, and its values.

Theory of operation: a store is a dict of bytes with a history. Every transaction that changes something gets
the next revision, and all its writes carry that revision. Revisions only grow; they need not be dense, since
an etcd is shared with others. The past can be read until `compact` drops it: after `compact(r)` the state at
`r` and everything later is still readable.

A watch continues where a read stopped: `range` returns the revision it read at, and `watch` after that
revision yields every later change exactly once, in order, and all changes of one revision together.

This module has values and pure functions on them; it depends on no back end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import msgspec

FIRST_REVISION = 1
"""The revision of a store in which nothing has been written."""

MAX_BUFFERED_EVENTS = 10_000
"""How many events a watcher may fall behind before it is cut off."""

MAX_BUFFERED_BYTES = 16 * 1024 * 1024
"""How many bytes of values may be buffered for one watcher before it is cut off."""


class StoreEntry(msgspec.Struct, frozen=True, gc=False):
    """A key with its value and its revisions."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    """1 when created, incremented by every put."""


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    """One key changed at `revision`: `entry` is its new state (None: deleted), `previous` the old one."""

    key: bytes
    revision: int
    entry: StoreEntry | None
    previous: StoreEntry | None


class EventBatch(msgspec.Struct, frozen=True, gc=False):
    """All watched changes of one `revision`, in the order written; empty for a bookmark.

    A bookmark means that everything up to `revision` has been delivered.
    """

    revision: int
    events: tuple[StoreEvent, ...] = ()


class EntryPage(msgspec.Struct, frozen=True, gc=False):
    """Entries in the order of their keys, as of `revision`; `more` when a limit cut them short."""

    entries: tuple[StoreEntry, ...]
    revision: int
    more: bool = False


class KeyUnchanged(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The key was last written at `mod_revision`; 0 means that it is absent."""

    key: bytes
    mod_revision: int


class KeyAbsent(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The key is absent."""

    key: bytes


class KeyHasValue(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The key exists and has this value."""

    key: bytes
    value: bytes


Compare = KeyUnchanged | KeyAbsent | KeyHasValue


class Put(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Set the value of the key."""

    key: bytes
    value: bytes


class Delete(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Remove the key; does nothing when it is absent."""

    key: bytes


Write = Put | Delete


class Committed(msgspec.Struct, frozen=True, gc=False):
    """All writes happened, at `revision`; if they changed nothing, it is the current revision."""

    revision: int


class FailedCompare(msgspec.Struct, frozen=True, gc=False):
    """A compare that failed, and the entry found instead."""

    compare: Compare
    current: StoreEntry | None


class TxnConflict(msgspec.Struct, frozen=True, gc=False):
    """No write happened, because these compares failed at `revision`."""

    revision: int
    failed: tuple[FailedCompare, ...]


class TxnStep(msgspec.Struct, frozen=True, gc=False):
    """One transaction of a sequence.

    A compare with `build_step_revision(n)` means the revision that step `n` of the same sequence gets.
    """

    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]


class SequenceCommitted(msgspec.Struct, frozen=True, gc=False):
    """All steps happened; each has a revision of its own, in their order."""

    revisions: tuple[int, ...]


class SequenceConflict(msgspec.Struct, frozen=True, gc=False):
    """No step happened, because these compares of one step failed; `revision` is that of the store."""

    revision: int
    step: int
    failed: tuple[FailedCompare, ...]


class Store(Protocol):
    """Bytes under keys, with a history. Every method may raise `StoreError`."""

    async def get_revision(self) -> int:
        """Return the revision of the newest change."""
        ...

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        """Return the current entry, or the entry at `revision`."""
        ...

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        """Return the entries whose keys start with `prefix` and come after `start_after`.

        To page through a state that others keep changing, pass the revision of the first page to the next.
        """
        ...

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        """Do all writes in one revision if all compares hold, else none."""
        ...

    def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield every change under `prefix` later than `after_revision`, without end.

        With `bookmarks`, an idle watch yields its progress about every so many seconds. Close the generator
        when done (`contextlib.aclosing`).
        """
        ...

    async def compact(self, revision: int) -> None:
        """Drop the history before `revision`; does nothing when that has been done already."""
        ...

    async def close(self) -> None:
        """Release all resources; watches end with `StoreClosedError`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class SequenceStore(Protocol):
    """A store that commits several transactions together, each with a revision of its own."""

    async def txn_sequence(self, steps: Sequence[TxnStep]) -> SequenceCommitted | SequenceConflict:
        """Do all steps, one after the other, or none.

        Readers and watchers see what as many transactions in a row would show them; no crash and no other
        writer comes between the steps.
        """
        ...


class AsyncCloseMixin:
    """Makes a store an async context manager."""

    async def close(self) -> None:
        """Close the store; every store overrides this."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def evaluate_compare(compare: Compare, current: StoreEntry | None) -> bool:
    """Return whether the compare holds for the entry under its key."""
    # Called for every compare of every write, and looking at the type is several times faster than `match`.
    if type(compare) is KeyUnchanged:
        return compare.mod_revision == (0 if current is None else current.mod_revision)
    if type(compare) is KeyHasValue:
        return current is not None and current.value == compare.value
    return current is None


def build_step_revision(step: int) -> int:
    """Return what stands for the revision of a step of a sequence before the store has assigned it."""
    return -1 - step


def resolve_step_revision(revision: int, revisions: Sequence[int]) -> int:
    """Return the revision that `build_step_revision` stands for; other revisions stay what they are."""
    return revisions[-1 - revision] if revision < 0 else revision


def resolve_compares(compares: Sequence[Compare], revisions: Sequence[int]) -> tuple[Compare, ...]:
    """Return the compares of a step with the revisions that earlier steps got."""
    return tuple(
        KeyUnchanged(compare.key, resolve_step_revision(compare.mod_revision, revisions))
        if type(compare) is KeyUnchanged and compare.mod_revision < 0
        else compare
        for compare in compares
    )


def find_failed_compares(
    compares: Sequence[Compare], get_entry: Callable[[bytes], StoreEntry | None]
) -> tuple[FailedCompare, ...]:
    """Return the compares that do not hold, with what was found instead."""
    judged = [(compare, get_entry(compare.key)) for compare in compares]
    return tuple(
        FailedCompare(compare, found) for compare, found in judged if not evaluate_compare(compare, found)
    )


def get_prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that start with `prefix`; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def get_range_start(prefix: bytes, start_after: bytes | None) -> bytes:
    """Return the smallest key a range may return."""
    return prefix if start_after is None else max(prefix, start_after + b"\0")


def check_txn(compares: Sequence[Compare], writes: Sequence[Write]) -> None:
    """Refuse a transaction that writes a key twice (it has one revision), or an empty key."""
    keys = {write.key for write in writes}
    if len(keys) != len(writes):
        written = [write.key for write in writes]
        twice = next(key for key in written if written.count(key) > 1)
        raise ValueError(f"key `{twice!r}` is written twice in one transaction")
    for write in writes:
        if type(write) is Put and type(write.value) is not bytes:
            raise TypeError("a value is bytes")
    if b"" in keys or any(compare.key == b"" for compare in compares):
        raise ValueError("a key has at least one byte")


def check_sequence(steps: Sequence[TxnStep]) -> None:
    """Refuse steps that write a key twice, and compares with the revision of a step that comes later."""
    for number, step in enumerate(steps):
        check_txn(step.compares, step.writes)
        for compare in step.compares:
            if type(compare) is KeyUnchanged and compare.mod_revision < -number:
                raise ValueError(
                    f"step {number} of a sequence compares with step {-1 - compare.mod_revision}, which is "
                    "not before it"
                )


def check_read(limit: int | None, revision: int | None) -> None:
    """Refuse a page without entries, and revisions before the first."""
    if limit is not None and limit < 1:
        raise ValueError(f"a page of `{limit}` entries cannot be read; give at least 1, or None for all")
    if revision is not None and revision < FIRST_REVISION:
        raise ValueError(f"there is no revision `{revision}`; the first is {FIRST_REVISION}, None means now")
