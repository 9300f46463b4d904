"""The hash chain reveals every line that was changed, removed, moved or inserted, and tolerates what a crash
tears.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dray.server.audit.hash_chain import GENESIS_HASH, format_chained_line, hash_line, verify_lines


def chain(count: int, begin: int = 1, previous: str = GENESIS_HASH) -> list[bytes]:
    lines = []
    for sequence in range(begin, begin + count):
        lines.append(format_chained_line(b'{"event":"complete","user":"u%d"}' % sequence, sequence, previous))
        previous = hash_line(lines[-1])
    return lines


def judged(lines, wanted=frozenset()):
    return verify_lines([(line, f"log:{number}") for number, line in enumerate(lines, 1)], wanted)


def test_a_line_is_json_and_begins_with_its_place_in_the_chain():
    line = format_chained_line(b'{"event":"opened"}', 7, "ab")
    assert json.loads(line) == {"sequence": 7, "previous": "ab", "event": "opened"}
    assert json.loads(format_chained_line(b"{}", 1, "")) == {"sequence": 1, "previous": ""}


def test_a_whole_chain_has_no_findings():
    lines = chain(5)
    verdict = judged(lines)
    assert (verdict.lines, verdict.first, verdict.last, verdict.findings) == (5, 1, 5, ())
    assert verdict.head == hash_line(lines[-1])


@given(st.integers(2, 8), st.data())
def test_any_change_of_any_line_but_the_last_is_found(count, data):
    lines = chain(count)
    place = data.draw(st.integers(0, count - 2))
    at = data.draw(st.integers(0, len(lines[place]) - 1))
    flipped = bytearray(lines[place])
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    lines[place] = bytes(flipped)
    assert not judged(lines).is_intact


@given(st.integers(3, 8), st.data())
def test_any_line_taken_out_of_the_middle_is_found(count, data):
    lines = chain(count)
    place = data.draw(st.integers(1, count - 2))
    del lines[place]
    verdict = judged(lines)
    assert [str(finding) for finding in verdict.findings] == [
        f"log:{place + 1}: line `{place + 1}` is missing"
    ]
    assert not verdict.is_intact


def test_several_missing_lines_are_named_by_their_range():
    lines = chain(9)
    assert "lines `3` to `6` are missing" in str(judged(lines[:2] + lines[6:]).findings[0])


def test_a_changed_line_is_named():
    lines = chain(4)
    lines[1] = lines[1].replace(b"u2", b"uX")
    assert [str(finding) for finding in judged(lines).findings] == [
        "log:3: line `3` remembers another line before it; `log:2` was changed"
    ]


def test_a_copied_line_is_found():
    lines = chain(4)
    assert not judged([*lines, lines[1]]).is_intact


def test_a_line_in_the_middle_that_is_no_line_is_found():
    lines = chain(3)
    lines.insert(1, b"nonsense")
    verdict = judged(lines)
    assert not verdict.is_intact
    assert "log:2: not a line of this log" in str(verdict.findings[0])


def test_a_torn_line_with_its_repair_is_only_noted():
    lines = chain(2)
    torn = b'{"sequence":3,"prev'
    repair = format_chained_line(
        b'{"event":"repaired","torn":"%s"}' % hash_line(torn).encode(), 3, hash_line(lines[-1])
    )
    verdict = judged([*lines, torn, repair])
    assert verdict.is_intact
    assert "log:3: torn by a crash" in str(verdict.findings[0])


def test_a_repair_excuses_only_the_bytes_it_names():
    lines = chain(2)
    repair = format_chained_line(
        b'{"event":"repaired","torn":"%s"}' % hash_line(b"other").encode(), 3, hash_line(lines[-1])
    )
    assert not judged([*lines, b"torn", repair]).is_intact


def test_a_torn_end_is_only_noted():
    verdict = judged([*chain(2), b'{"seq'])
    assert verdict.is_intact
    assert "torn" in str(verdict.findings[0])


def test_a_log_without_its_first_files_reports_where_it_begins():
    verdict = judged(chain(3, begin=40, previous="ab"))
    assert verdict.is_intact
    assert "begins at line `40`" in str(verdict.findings[0])


def test_a_truncated_log_is_detected_by_a_hash_stored_elsewhere():
    lines = chain(5)
    wanted = frozenset({hash_line(lines[4])})
    assert judged(lines, wanted).is_intact
    assert not judged(lines[:4], wanted).is_intact
    assert judged(lines[:4]).is_intact, "without the hash nobody can know"


def test_one_broken_place_does_not_hide_the_next():
    lines = chain(9)
    del lines[6]
    del lines[2]
    assert len(judged(lines).findings) == 2
