"""The phases of classic claims: who may move them where, and what a driver leaves alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED, PENDING, REALLOCATE
from dray.api.validation.kinds.classic import TRANSITIONS as VALID_TRANSITIONS
from dray.claims.classic_phases import (
    TRANSITIONS,
    ClassicWriter,
    explain_refused_transition,
    find_driver_violations,
    is_transition_allowed,
)

req = pytest.mark.req
PHASES = (PENDING, ALLOCATED, REALLOCATE)
MOVES = {
    (before, after, by) for before in PHASES for after in PHASES for by in ClassicWriter if before != after
}


@pytest.mark.parametrize("step", TRANSITIONS, ids=lambda step: f"{step.before} to {step.after}")
def test_what_the_table_allows_is_allowed_to_one_side(step):
    move = (step.before, step.after)
    assert [
        side for side in ClassicWriter if is_transition_allowed(*move, side, deleting=step.deleting_only)
    ] == [step.by]


@req("K3063-082")
@pytest.mark.parametrize("leaving", [False, True])
def test_nothing_else_is_allowed(leaving):
    listed = {(step.before, step.after, step.by) for step in TRANSITIONS if leaving or not step.deleting_only}
    assert {move for move in MOVES if is_transition_allowed(*move, deleting=leaving)} == listed


def test_a_transition_that_no_writer_may_make_is_refused():
    """Validation cannot tell the sides apart; both tables must be about the same steps."""
    assert {(step.before, step.after) for step in TRANSITIONS if not step.deleting_only} == {
        (before, after) for before, ways in VALID_TRANSITIONS.items() for after in ways
    }


@pytest.mark.parametrize("phase", PHASES)
def test_to_stay_is_no_move(phase):
    assert all(is_transition_allowed(phase, phase, side) for side in ClassicWriter)


def test_a_refused_transition_names_the_allowed_ones():
    text = explain_refused_transition(PENDING, ALLOCATED, ClassicWriter.SCHEDULER)
    assert text == (
        "the scheduler may not move a claim from Pending to Allocated: "
        "the driver may move it to Allocated when the resource is allocated"
    )


# --- what a driver writes ---


def claim(mode: str = "Delayed", deleted: bool = False, **status: Any) -> ClassicResourceClaim:
    metadata = {"name": "c"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    document = {"metadata": metadata, "spec": {"allocationMode": mode}, "status": status}
    return msgspec.convert(document, ClassicResourceClaim)


def offer(selected: str = "", *potential: str, **driver: Any) -> dict[str, Any]:
    scheduler = {"selectedNode": selected, "potentialNodes": list(potential)}
    return {"scheduling": {"scheduler": scheduler, "driver": driver}}


USER = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
OFFERED = claim(**offer("a", "a", "b"))
IMMEDIATE = claim("Immediate")


@req("K3063-072", "K3063-084", "K3063-087")
@pytest.mark.parametrize(
    ("new", "old"),
    [
        (claim(phase="Allocated", attributes={"id": "1"}, driverName="d.example", userLimit=3), OFFERED),
        (claim(**offer("a", "a", "b", unsuitableNodes=["b"])), OFFERED),
        (claim(**offer("", "a", "b")), OFFERED),
        (claim("Immediate", **offer("n")), IMMEDIATE),
        (claim(), claim(phase="Reallocate")),
        (claim(phase="Pending", deleted=True), claim(phase="Allocated", deleted=True)),
    ],
    ids=["allocates", "declines", "unsets the node", "selects at once", "frees", "frees at the end"],
)
def test_what_is_a_drivers_to_write(new, old):
    assert list(find_driver_violations(new, old)) == []


@req("K3063-082")
@pytest.mark.parametrize(
    ("new", "old", "word"),
    [
        (claim(phase="Reallocate"), claim(phase="Allocated"), "Reallocate"),
        (claim(phase="Pending"), claim(phase="Allocated"), "being deleted"),
        (claim(phase="Allocated", reservedFor=USER), claim(phase="Allocated"), "reservedFor"),
        (claim(phase="Allocated"), claim(phase="Allocated", reservedFor=USER), "reservedFor"),
        (claim(**offer("a", "a", "c")), OFFERED, "potentialNodes"),
        (claim(**offer("b", "a", "b")), OFFERED, "selectedNode"),
    ],
)
def test_what_is_not(new, old, word):
    (said,) = find_driver_violations(new, old)
    assert word in said
