"""The last line of a log is found from its end, however much is torn there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.server.audit.hash_chain import GENESIS_HASH, format_chained_line
from dray.server.audit.verification import read_last_line

FIRST = format_chained_line(b'{"event":"opened"}', 1, GENESIS_HASH)
SECOND = format_chained_line(b'{"event":"complete"}', 2, GENESIS_HASH)
MUCH = b"x" * 300_000

CASES = {
    "nothing": (b"", None, b""),
    "one line": (FIRST + b"\n", FIRST, b""),
    "a line without its newline": (FIRST + b"\n" + SECOND, SECOND, b""),
    "a torn line": (FIRST + b"\n" + SECOND[:20], FIRST, SECOND[:20]),
    "a torn line and an empty one": (FIRST + b"\ntorn\n\n", FIRST, b"torn\n\n"),
    "only what is torn": (b"torn\n" + MUCH, None, b"torn\n" + MUCH),
    "much before it": (MUCH + b"\n" + FIRST + b"\n", FIRST, b""),
    "much behind it": (FIRST + b"\n" + MUCH, FIRST, MUCH),
    "many lines behind it": (FIRST + b"\n" + b"torn\n" * 50_000, FIRST, b"torn\n" * 50_000),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_whole_line_and_what_is_torn_behind_it(name: str, tmp_path: Path) -> None:
    text, whole, torn = CASES[name]
    path = tmp_path / "audit.log"
    path.write_bytes(text)
    assert read_last_line(path) == (whole, torn)
