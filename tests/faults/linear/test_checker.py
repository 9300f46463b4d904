"""The checkers' own tests: what they must accept, what they must catch, and stores that lie."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.linear import campaign
from tests.faults.linear.checker import judge, step, stuck_at
from tests.faults.linear.operations import ABSENT, Change, Op
from tests.faults.linear.order import judge_order


def put(value: int, begun: float, ended: float | None) -> Op:
    op = Op(0, "put", 1, value, begun=begun, done=ended is not None, known=ended is not None)
    if ended is not None:
        op.ended = ended
    return op


def get(found: int, begun: float, ended: float) -> Op:
    return Op(1, "get", 1, begun=begun, ended=ended, known=True, done=True, found=found)


def cas(expected: int, value: int, begun: float, ended: float, found: int | None = None) -> Op:
    return Op(
        2, "cas", 1, value, expected, begun, ended, known=True, done=found is None, found=found or ABSENT
    )


FINE = {
    "one after the other": [put(1, 0, 1), get(1, 2, 3)],
    "a read beside a write sees either": [put(1, 0, 9), get(0, 1, 2), get(1, 3, 4)],
    "a write of unknown end happened late": [put(1, 0, None), get(0, 1, 2), get(1, 3, 4)],
    "a write of unknown end never happened": [put(1, 0, None), get(0, 1, 2), get(0, 3, 4)],
    "swaps in the only order that fits": [cas(5, 6, 0, 9), cas(0, 5, 0, 9), get(6, 10, 11)],
    "a refused swap saw what was there": [put(1, 0, 1), cas(0, 2, 2, 3, found=1), get(1, 4, 5)],
}
WRONG = {
    "a read from the past": [put(1, 0, 1), put(2, 2, 3), get(1, 4, 5)],
    "a value that was seen goes away again": [put(1, 0, 9), get(1, 1, 2), get(0, 3, 4)],
    "a lost write": [put(1, 0, 1), get(0, 2, 3)],
    "two swaps of the same value": [put(1, 0, 1), cas(1, 2, 2, 3), cas(1, 3, 2, 3)],
    "a refusal without a reason": [put(1, 0, 1), cas(1, 2, 2, 3, found=1)],
    "a read of what nobody wrote": [put(1, 0, 1), get(7, 2, 3)],
    "a write of unknown end happened twice": [
        put(1, 0, None), get(1, 1, 2), put(2, 3, 4), get(2, 5, 6), get(1, 7, 8),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_what_has_an_order_is_accepted(case: str):
    assert stuck_at(FINE[case]) is None


@pytest.mark.parametrize("case", WRONG)
def test_what_has_none_is_caught(case: str):
    assert stuck_at(WRONG[case]) is not None


OPS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "cas", "delete"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=5,
)


@given(OPS, st.randoms(use_true_random=False))
def test_it_agrees_with_trying_every_order(rough, rng):
    ops = [
        Op(
            0,
            kind,
            1,
            number + 1,
            found,
            begun,
            begun + rng.randint(1, 6),
            True,
            rng.random() < 0.7,
            found,
        )
        for number, (kind, found, begun) in enumerate(rough)
    ]
    assert (stuck_at(ops) is None) == _some_order(ops, ABSENT)


def _some_order(left: list[Op], value: int) -> bool:
    """Try everything: any operation may come first that did not begin after another one's end."""
    if not left:
        return True
    first_end = min(op.ended for op in left)
    return any(
        (after := step(value, op)) is not None and _some_order([o for o in left if o is not op], after)
        for op in left
        if op.begun <= first_end
    )


def test_a_torn_list_is_caught_by_the_order_only():
    truth = [Change(2, 1, 1), Change(3, 2, 2), Change(4, 1, 3)]
    torn = Op(0, "list", begun=0, ended=9, known=True, revision=4, contents={1: 3})
    assert judge_order([torn], truth)
    whole = Op(0, "list", begun=0, ended=9, known=True, revision=3, contents={1: 1, 2: 2})
    assert not judge_order([whole], truth)


def test_a_revision_against_the_clock_is_caught():
    truth = [Change(2, 1, 1), Change(3, 1, 2)]
    late = Op(0, "put", 1, 2, begun=0, ended=1, known=True, done=True, revision=3)
    early = Op(0, "put", 1, 1, begun=2, ended=3, known=True, done=True, revision=2)
    assert judge_order([late, early], truth)
    early.begun = 0.5
    assert not judge_order([late, early], truth)


@pytest.mark.parametrize("fault", ["stale", "lost-cas", "lost-write", "torn-list"])
def test_a_store_that_lies_is_caught(tmp_path: Path, fault: str):
    tally = asyncio.run(campaign.in_a_process(tmp_path, (1, 1200), seed=3, fault=fault))
    words = {"stale": "no order", "lost-cas": "no order", "lost-write": "lost:", "torn-list": "no state"}
    assert any(words[fault] in finding for finding in tally.wrong), tally.wrong[:3]


def test_a_list_counts_as_a_read_of_every_key():
    ops = [put(1, 0, 1), Op(0, "list", begun=2, ended=3, known=True, contents={})]
    assert judge(ops)
