"""A chain of lines: each carries a number and the hash of the line before it.

Theory of operation: a line is one JSON object. It begins with `sequence`, which counts up by one, and
`previous`, the SHA-256 of the line before without its newline; the first line of all names sixty-four zeros.
So a line that is changed, taken out or moved is noticed at the line behind it. A crash may leave the last
line torn. The next start closes it with a newline and writes a line that names the hash of the torn bytes, so
that a torn line is told from one that was tampered with; the chain goes on from the last whole line.

What a chain cannot show by itself: that its end was cut off, or that all of it was written anew. For that,
the hash of a line must be kept somewhere else, and asked for.

Rules for this file: no files here, only lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.api.json_text import read_json
from dray.errors import DecodeError

GENESIS_HASH = "0" * 64
"""What the first line of all says the line before it was."""

REPAIRED_EVENT = "repaired"
MAX_LINE_BYTES = 1 << 20
"""No line is longer; what is, was not written by us."""

MAX_FINDINGS = 100


def hash_line(line: bytes) -> str:
    """The hash of a line without its newline."""
    return hashlib.sha256(line).hexdigest()


def format_chained_line(body: bytes, sequence: int, previous: str) -> bytes:
    """A JSON object as a line of the chain."""
    rest = body[1:] if body == b"{}" else b"," + body[1:]
    return b'{"sequence":%d,"previous":"%s"%s' % (sequence, previous.encode(), rest)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """What the chain needs of a line."""

    sequence: int
    previous: str
    event: str
    torn: str

    @classmethod
    def parse(cls, line: bytes) -> ChainLink | None:
        """A line as a link; None when it is not one."""
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
    """Something about a log that somebody should know; `broken` when it cannot have happened by accident."""

    location: str
    text: str
    broken: bool

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a walk along the chain has shown."""

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
    """A walk along the chain, line by line."""

    lines: int = 0
    first: int = 0
    last: int = 0
    head: str = GENESIS_HASH
    found_hashes: set[str] = field(default_factory=set)
    """The hashes somebody asked for that were found."""
    expected_hashes: frozenset[str] = frozenset()
    findings: list[ChainFinding] = field(default_factory=list)
    _location: str = ""
    _torn: tuple[str, bytes] | None = None
    """Where lines are that are none, and what they say, until the next line explains them."""

    def verify_line(self, line: bytes, location: str) -> None:
        """Look at the next line."""
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
        """What the walk has shown."""
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
    """Walk along lines with their places."""
    steps = ChainVerifier(expected_hashes=expected_hashes)
    for line, place in lines:
        steps.verify_line(line, place)
    return steps.finish()
