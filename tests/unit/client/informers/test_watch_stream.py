"""However a stream is split, its lines are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.client.errors import BrokenWatchError
from dray.client.informers.watch_stream import LineSplitter

LINES = st.lists(st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"\n", b"n")), max_size=8)


@given(LINES, st.lists(st.integers(0, 200), max_size=12))
def test_lines_do_not_depend_on_the_cuts(lines, cuts):
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    reader, found, start = LineSplitter(), [], 0
    for end in ends:
        found += reader.feed(stream[start:end])
        start = end
    assert found == lines


def test_a_line_without_end_is_refused_before_it_fills_the_memory():
    reader = LineSplitter(max_bytes=100)
    assert reader.feed(b"x" * 60) == []
    with pytest.raises(BrokenWatchError, match="more than 100 bytes"):
        reader.feed(b"x" * 60)


def test_the_limit_is_on_lines_not_on_streams():
    reader = LineSplitter(max_bytes=100)
    assert len([line for _ in range(50) for line in reader.feed(b"x" * 60 + b"\n")]) == 50
