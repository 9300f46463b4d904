"""The phases of classic claims: who may move them where."""

from __future__ import annotations

import pytest

from dray.api.classic.resourceclaim import ALLOCATED, PENDING, REALLOCATE
from dray.claims.phases import STEPS, Side, may_move, refusal

PHASES = (PENDING, ALLOCATED, REALLOCATE)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.before} to {step.after}")
def test_what_the_table_allows_is_allowed_to_one_side(step):
    assert [side for side in Side if may_move(step.before, step.after, side)] == [step.by]


def test_nothing_else_is_allowed():
    moves = {(before, after, by) for before in PHASES for after in PHASES for by in Side if before != after}
    listed = {(step.before, step.after, step.by) for step in STEPS}
    assert {move for move in moves if may_move(*move)} == listed


@pytest.mark.parametrize("phase", PHASES)
def test_to_stay_is_no_move(phase):
    assert all(may_move(phase, phase, side) for side in Side)


def test_a_refusal_says_what_would_be_allowed():
    text = refusal(PENDING, ALLOCATED, Side.SCHEDULER)
    assert text == (
        "the scheduler may not move a claim from Pending to Allocated: "
        "the driver may move it to Allocated when the resource is allocated"
    )
