"""Lines that are shared: the newest, so many and so heavy at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.server.watch.encoded_events import EncodedEventCache


def test_a_line_is_found_while_it_is_kept():
    lines = EncodedEventCache(max_events=2)
    for number in range(3):
        assert lines.add((number,), b"line %d" % number) == b"line %d" % number
    assert [lines.find((number,)) for number in range(3)] == [None, b"line 1", b"line 2"]


@given(st.lists(st.tuples(st.integers(0, 8), st.binary(max_size=12))), st.integers(1, 5), st.integers(1, 30))
def test_lines_never_are_more_or_weigh_more_than_they_may(kept, most, heaviest):
    """A thousand lines of large objects once weighed more than the server."""
    lines = EncodedEventCache(most, heaviest)
    for name, line in kept:
        lines.add((name,), line)
        assert lines.find((name,)) in ((line,) if len(line) <= heaviest else (None,))
        found = [lines.find((number,)) for number in range(9)]
        assert len(lines) == sum(one is not None for one in found) <= most
        assert lines.total_bytes == sum(len(one) for one in found if one is not None) <= heaviest
