"""The judges' own tests: each promise, broken on purpose, is missed by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dray.store import Delete, EventBatch, Put
from tests.faults.watch.guarantees import GUARANTEES, Span, broken
from tests.faults.watch.truth import Truth

TRUTH = Truth.of(
    {},
    [
        (2, [Put(b"a/1", b"x"), Put(b"a/2", b"x"), Put(b"b", b"")]),
        (3, [Put(b"a/1", b"y")]),
        (4, [Put(b"b", b"")]),
        (5, [Delete(b"a/1")]),
        (7, [Put(b"a/1", b"z")]),
    ],
)


def told() -> list[EventBatch]:
    return [EventBatch(at, TRUTH.at(at, b"a/")) for at in (2, 3)] + [
        EventBatch(4),
        EventBatch(5, TRUTH.at(5, b"a/")),
        EventBatch(7, TRUTH.at(7, b"a/")),
        EventBatch(9),
    ]


def altered(at: int, **fields: object) -> Callable[[list[EventBatch]], list[EventBatch]]:
    """The first event of one batch says something else."""

    def change(batches: list[EventBatch]) -> list[EventBatch]:
        batch = batches[at]
        event = msgspec.structs.replace(batch.events[0], **fields)
        batches[at] = EventBatch(batch.revision, (event, *batch.events[1:]))
        return batches

    return change


LIES: dict[str, tuple[str, Callable[[list[EventBatch]], list[EventBatch]]]] = {
    "a key from elsewhere": ("filter", altered(0, key=b"b")),
    "two batches exchanged": ("ordered", lambda b: [b[1], b[0], *b[2:]]),
    "a batch twice": ("unique", lambda b: [b[0], b[0], *b[1:]]),
    "half of a revision": ("atomic", lambda b: [EventBatch(2, b[0].events[:1]), *b[1:]]),
    "a revision in two batches": (
        "atomic", lambda b: [EventBatch(2, b[0].events[:1]), EventBatch(2, b[0].events[1:]), *b[1:]],
    ),
    "a hole": ("reliable", lambda b: [b[0], *b[2:]]),
    "the beginning is missing": ("resumable", lambda b: b[1:]),
    "a bookmark too early": ("bookmarkable", lambda b: [b[0], EventBatch(3), *b[1:]]),
    "a bookmark that skips": ("bookmarkable", lambda b: [b[0], b[1], EventBatch(6)]),
    "a wrong value before": ("previous value", altered(1, previous=None)),
    "a change called a deletion": ("created or changed", altered(1, entry=None)),
}  # fmt: skip


def test_what_is_true_passes():
    assert broken([Span(b"a/", 1, told())], TRUTH) == []


@pytest.mark.parametrize("lie", LIES)
def test_every_broken_promise_is_missed_by_name(lie: str):
    promise, change = LIES[lie]
    assert any(line.startswith(promise) for line in broken([Span(b"a/", 1, change(told()))], TRUTH))


def test_every_promise_is_tested():
    assert {promise for promise, _ in LIES.values()} == set(GUARANTEES)
