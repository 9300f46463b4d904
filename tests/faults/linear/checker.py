"""A linearizability checker after Wing and Gong: is there an order of all operations that explains every
answer?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.faults.linear.operations import ABSENT, NEVER, Op

World = tuple[int, int]
"""The value of the key, and the set of operations under way that have happened, as bits."""

MOST_WORLDS = 200_000


class TooManyWorlds(Exception):  # noqa: N818 - what happened
    """The history leaves too much open to be judged."""


def judge(ops: Iterable[Op]) -> list[str]:
    """One sentence for each key whose answers no order explains."""
    by_key: dict[int, list[Op]] = {}
    whole = list(ops)
    keys = {op.key for op in whole if op.kind != "list"} | {key for op in whole for key in op.contents}
    for op in whole:
        if op.kind != "list":
            by_key.setdefault(op.key, []).append(op)
        elif op.known:
            for key in keys:
                by_key.setdefault(key, []).append(_as_read(op, key))
    verdicts = ((key, stuck_at(mine)) for key, mine in sorted(by_key.items()))
    return [f"key {key}: no order explains {at}" for key, at in verdicts if at is not None]


def stuck_at(ops: Sequence[Op]) -> Op | None:
    """The operation on one key whose answer fits no order; None when all of them fit."""
    # A read without an answer says nothing.
    useful = [op for op in ops if op.known or op.kind != "get"]
    moments = sorted(
        [(op.begun, 0, number) for number, op in enumerate(useful)]
        + [(op.ended, 1, number) for number, op in enumerate(useful) if op.known and op.ended < NEVER]
    )
    under_way: set[int] = set()
    worlds: set[World] = {(ABSENT, 0)}
    for _, is_end, number in moments:
        if not is_end:
            under_way.add(number)
            continue
        worlds = _after_end(worlds, number, under_way, useful)
        under_way.discard(number)
        if not worlds:
            return useful[number]
    return None


def _after_end(worlds: set[World], ending: int, under_way: set[int], ops: Sequence[Op]) -> set[World]:
    """The worlds in which the operation has happened; it is then no longer under way."""
    bit = 1 << ending
    finished: set[World] = set()
    seen, waiting = set(worlds), list(worlds)
    while waiting:
        value, happened = waiting.pop()
        if happened & bit:
            finished.add((value, happened & ~bit))
            continue
        for number in under_way:
            if happened >> number & 1:
                continue
            after = step(value, ops[number])
            if after is None:
                continue
            world = (after, happened | 1 << number)
            if world not in seen:
                seen.add(world)
                waiting.append(world)
        if len(seen) > MOST_WORLDS:
            raise TooManyWorlds(f"more than {MOST_WORLDS} possible worlds for one key")
    return finished


def step(value: int, op: Op) -> int | None:
    """The value after the operation; None when its answer could not have been given."""
    match op.kind:
        case "put":
            return op.value
        case "delete":
            return ABSENT
        case "cas":
            return _swap(value, op)
        case _:
            return value if value == op.found else None


def _swap(value: int, op: Op) -> int | None:
    fits = value == op.expected
    if not op.known:
        return op.value if fits else value
    if op.done:
        return op.value if fits else None
    return value if not fits and value == op.found else None


def _as_read(op: Op, key: int) -> Op:
    return Op(
        client=op.client,
        kind="get",
        key=key,
        begun=op.begun,
        ended=op.ended,
        known=True,
        found=op.contents.get(key, ABSENT),
    )
