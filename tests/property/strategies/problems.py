"""Strategies for allocation problems."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.brute.generators import draw
from tests.brute.problem import Problem

problems: st.SearchStrategy[Problem] = st.randoms(use_true_random=False).map(draw)
"""Small problems; hypothesis makes the choices, so it can look for a smaller one that fails."""
