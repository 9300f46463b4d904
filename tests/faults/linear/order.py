"""Checks that revisions give the order, and that each list is one state of it; for stores with revisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.faults.linear.operations import ABSENT, Change, Op


def judge_order(ops: Sequence[Op], truth: Sequence[Change]) -> list[str]:
    """One sentence for each disagreement."""
    return [*_writes(ops, truth), *_lists(ops, truth), *_real_time(ops)]


def _writes(ops: Sequence[Op], truth: Sequence[Change]) -> Iterable[str]:
    at = {(change.revision, change.key): change.value for change in truth}
    values = {change.value for change in truth if change.value != ABSENT}
    revisions = [change.revision for change in truth]
    if revisions != sorted(revisions):
        yield "the history is not in the order of its revisions"
    for op in ops:
        if op.kind not in ("put", "cas") or not op.known:
            continue
        if op.done and at.get((op.revision, op.key)) != op.value:
            yield f"lost: {op}"
        if not op.done and op.value in values:
            yield f"refused, and yet there: {op}"


def _lists(ops: Sequence[Op], truth: Sequence[Change]) -> Iterable[str]:
    lists = sorted((op for op in ops if op.kind == "list" and op.known), key=lambda op: op.revision)
    state: dict[int, int] = {}
    position = 0
    for op in lists:
        while position < len(truth) and truth[position].revision <= op.revision:
            state[truth[position].key] = truth[position].value
            position += 1
        living = {key: value for key, value in state.items() if value != ABSENT}
        if op.contents != living:
            yield f"a list that is no state: {op}"


def _real_time(ops: Sequence[Op]) -> Iterable[str]:
    """Sweep by beginning; what has ended by then must not have a greater revision."""
    stamped = [op for op in ops if op.known and op.revision and (op.kind == "list" or op.done)]
    ended = sorted(stamped, key=lambda op: op.ended)
    newest, position = 0, 0
    for op in sorted(stamped, key=lambda op: op.begun):
        while position < len(ended) and ended[position].ended < op.begun:
            newest = max(newest, ended[position].revision)
            position += 1
        if op.revision < newest:
            yield f"revision {newest} was known before this began: {op}"
