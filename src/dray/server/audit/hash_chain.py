"""The hash chain of the audit log: each line has a number and the hash of the previous line.

Theory of operation: a line is one JSON object. It begins with `sequence`, which counts up by one, and
`previous`, the SHA-256 of the previous line without its newline; the first line of all has sixty-four zeros.
So a line that is changed, removed or moved is noticed at the next line. A crash may leave the last line torn.
The next start closes it with a newline and writes a line with the hash of the torn bytes, which tells a torn
line from a manipulated one; the chain continues from the last intact line.

A chain alone cannot show that its end was cut off, or that all of it was rewritten. For that, the hash of a
line must be stored elsewhere, and verified.

This module handles lines, not files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.api.json_text import read_json
from dray.errors import DecodeError

GENESIS_HASH = "0" * 64
"""The previous hash of the very first line."""

REPAIRED_EVENT = "repaired"
MAX_LINE_BYTES = 1 << 20
"""No line is longer; a longer one was not written by dray."""

MAX_FINDINGS = 100


def hash_line(line: bytes) -> str:
    """Hash a line without its newline."""
    return hashlib.sha256(line).hexdigest()


def format_chained_line(body: bytes, sequence: int, previous: str) -> bytes:
    """Format a JSON object as a line of the chain."""
    rest = body[1:] if body == b"{}" else b"," + body[1:]
    return b'{"sequence":%d,"previous":"%s"%s' % (sequence, previous.encode(), rest)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """The number and the previous hash of a line."""

    sequence: int
    previous: str
    event: str
    torn: str

    @classmethod
    def parse(cls, line: bytes) -> ChainLink | None:
        """Parse a line; None when it is not one of the chain."""
        if len(line) > MAX_LINE_BYTES:
            return None
        try:
            document = read_json(line)
        except DecodeError:
            return None
        if not isinstance(document, dict):
            return None
        sequence, previous = document.get("sequence"), document.get("previous")
        if type(sequence) is not int or not isinstance(previous, str):
            return None
        return cls(sequence, previous, str(document.get("event", "")), str(document.get("torn", "")))


@dataclass(frozen=True, slots=True)
class ChainFinding:
    """A finding about a log; `broken` when it cannot be the result of a crash."""

    location: str
    text: str
    broken: bool

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The result of the verification of a chain."""

    lines: int
    first: int
    last: int
    head: str
    findings: tuple[ChainFinding, ...]

    @property
    def is_intact(self) -> bool:
        return not any(finding.broken for finding in self.findings)


@dataclass
class ChainVerifier:
    """Verifies a chain line by line."""

    lines: int = 0
    first: int = 0
    last: int = 0
    head: str = GENESIS_HASH
    found_hashes: set[str] = field(default_factory=set)
    """The expected hashes that were found."""
    expected_hashes: frozenset[str] = frozenset()
    findings: list[ChainFinding] = field(default_factory=list)
    _location: str = ""
    _torn: tuple[str, bytes] | None = None
    """Invalid lines and their locations, until the next line explains them."""

    def verify_line(self, line: bytes, location: str) -> None:
        """Verify the next line."""
        link = ChainLink.parse(line)
        if link is None:
            self._torn = (
                (location, line) if self._torn is None else (self._torn[0], self._torn[1] + b"\n" + line)
            )
            return
        self._explain_torn(link)
        self._check_link(link, location)
        self.head, self.last, self._location = hash_line(line), link.sequence, location
        self.lines += 1
        if self.head in self.expected_hashes:
            self.found_hashes.add(self.head)

    def finish(self) -> ChainReport:
        """Return the result."""
        if self._torn is not None:
            place, _ = self._torn
            self._add_finding(
                place, "the last line is torn; the next start of the server closes it", broken=False
            )
        for hash_ in sorted(self.expected_hashes - self.found_hashes):
            self._add_finding(
                "the log", f"no line has the hash `{hash_}`; its end was cut off, or it was rewritten"
            )
        return ChainReport(self.lines, self.first, self.last, self.head, tuple(self.findings))

    def _explain_torn(self, link: ChainLink) -> None:
        if self._torn is None:
            return
        place, torn = self._torn
        self._torn = None
        if link.event == REPAIRED_EVENT and link.torn == hash_line(torn):
            self._add_finding(place, "torn by a crash and closed at the next start", broken=False)
        else:
            self._add_finding(place, "not a line of this log; it was changed or damaged after it was written")

    def _check_link(self, link: ChainLink, location: str) -> None:
        if not self.lines:
            self.first = link.sequence
            if link.sequence != 1 or link.previous != GENESIS_HASH:
                text = f"begins at line `{link.sequence}` of the log; the files before it are not here"
                self._add_finding(location, text, broken=False)
        elif link.sequence != self.last + 1:
            self._add_finding(location, _describe_gap(self.last, link.sequence))
        elif link.previous != self.head:
            text = f"line `{link.sequence}` remembers another line before it; `{self._location}` was changed"
            self._add_finding(location, text)

    def _add_finding(self, location: str, text: str, *, broken: bool = True) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(ChainFinding(location, text, broken))


def _describe_gap(last: int, sequence: int) -> str:
    if sequence == last + 2:
        return f"line `{last + 1}` is missing"
    if sequence > last:
        return f"lines `{last + 1}` to `{sequence - 1}` are missing"
    return f"line `{sequence}` stands behind line `{last}`; lines were moved or copied"


def verify_lines(
    lines: Iterable[tuple[bytes, str]], expected_hashes: frozenset[str] = frozenset()
) -> ChainReport:
    """Verify lines with their locations."""
    steps = ChainVerifier(expected_hashes=expected_hashes)
    for line, place in lines:
        steps.verify_line(line, place)
    return steps.finish()
