"""The partial solution: typed tables of facts and one undo log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.partial_solution import EVERY_CLAIM, PartialSolution
from tests.brute.laws import copy_facts


def test_rewinding_removes_a_fact_that_was_not_there_before():
    solution = PartialSolution()
    mark = solution.mark()
    solution.assign(solution.used_devices, EVERY_CLAIM, 1)
    solution.assign(solution.used_devices, EVERY_CLAIM, 3)
    assert solution.used_devices == {EVERY_CLAIM: 3}
    solution.rewind(mark)
    assert solution.used_devices == {}
    assert solution.undo_log == []


def test_rewinding_restores_an_older_fact():
    solution = PartialSolution()
    solution.assign(solution.share_amounts, (0, "mem"), 1)
    mark = solution.mark()
    solution.assign(solution.share_amounts, (0, "mem"), 0)
    solution.assign(solution.share_amounts, (1, "mem"), 0)
    solution.rewind(mark)
    assert solution.share_amounts == {(0, "mem"): 1}


def test_equal_keys_of_two_tables_are_two_facts():
    """Candidate 0 and claim 0 have one key; only the table tells them apart."""
    solution = PartialSolution()
    solution.assign(solution.used_devices, 0, 1)
    mark = solution.mark()
    solution.assign(solution.charged_devices, 0, True)
    solution.rewind(mark)
    assert solution.used_devices == {0: 1}
    assert solution.charged_devices == {}


TABLES = ("used_devices", "charged_devices", "share_amounts", "counter_draws")
FACTS = st.tuples(st.sampled_from(TABLES), st.sampled_from("abc"), st.integers(0, 3))
STEPS = st.lists(FACTS | st.just("mark") | st.just("rewind"))


@given(STEPS)
def test_rewinding_restores_exactly_what_was_there(steps):
    solution, marks = PartialSolution(), []
    for step in steps:
        if step == "mark":
            marks.append((solution.mark(), copy_facts(solution)))
        elif step == "rewind" and marks:
            mark, before = marks.pop()
            solution.rewind(mark)
            assert copy_facts(solution) == before
        elif step != "rewind":
            table, key, value = step
            solution.assign(getattr(solution, table), key, value)
