"""The cache of encoded events is bounded in number and bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.server.watch.encoded_events import EncodedEventCache


def test_an_encoded_event_is_found_until_it_is_evicted():
    lines = EncodedEventCache(max_events=2)
    for number in range(3):
        assert lines.add((number,), b"line %d" % number) == b"line %d" % number
    assert [lines.find((number,)) for number in range(3)] == [None, b"line 1", b"line 2"]


@given(st.lists(st.tuples(st.integers(0, 8), st.binary(max_size=12))), st.integers(1, 5), st.integers(1, 30))
def test_encoded_events_stay_within_the_bounds(kept, most, heaviest):
    """A thousand events of large objects once took more memory than the rest of the server."""
    lines = EncodedEventCache(most, heaviest)
    for name, line in kept:
        lines.add((name,), line)
        assert lines.find((name,)) in ((line,) if len(line) <= heaviest else (None,))
        found = [lines.find((number,)) for number in range(9)]
        assert len(lines) == sum(one is not None for one in found) <= most
        assert lines.total_bytes == sum(len(one) for one in found if one is not None) <= heaviest
