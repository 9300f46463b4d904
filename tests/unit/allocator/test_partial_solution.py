"""The partial solution and the way back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.partial_solution import PartialSolution


def test_a_fact_comes_and_goes():
    board = PartialSolution()
    mark = board.mark()
    board.set_fact("a", 1)
    board.set_fact("a", 2)
    assert board.facts == {"a": 2}
    board.rewind(mark)
    assert board.facts == {}
    assert board.undo_log == []


def test_an_older_fact_comes_back():
    board = PartialSolution()
    board.set_fact("a", 1)
    mark = board.mark()
    board.set_fact("a", None)
    board.set_fact("b", 0)
    board.rewind(mark)
    assert board.facts == {"a": 1}


def test_the_image_is_the_facts_and_not_how_they_came():
    one, other = PartialSolution(), PartialSolution()
    one.set_fact("a", 1)
    one.set_fact("b", 2)
    other.set_fact("b", 7)
    other.set_fact("b", 2)
    other.set_fact("a", 1)
    assert one.freeze() == other.freeze()


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)) | st.just("mark") | st.just("rewind"))


@given(STEPS)
def test_rewinding_restores_exactly_what_was(steps):
    board, marks = PartialSolution(), []
    for step in steps:
        if step == "mark":
            marks.append((board.mark(), dict(board.facts)))
        elif step == "rewind" and marks:
            mark, before = marks.pop()
            board.rewind(mark)
            assert board.facts == before
        elif step != "rewind":
            board.set_fact(*step)
