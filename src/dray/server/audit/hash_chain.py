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

GENESIS = "0" * 64
"""What the first line of all says the line before it was."""

REPAIRED = "repaired"
LONGEST = 1 << 20
"""No line is longer; what is, was not written by us."""

MOST_FINDINGS = 100


def digest(line: bytes) -> str:
    """The hash of a line without its newline."""
    return hashlib.sha256(line).hexdigest()


def sealed(body: bytes, sequence: int, previous: str) -> bytes:
    """A JSON object as a line of the chain."""
    rest = body[1:] if body == b"{}" else b"," + body[1:]
    return b'{"sequence":%d,"previous":"%s"%s' % (sequence, previous.encode(), rest)


@dataclass(frozen=True, slots=True)
class Link:
    """What the chain needs of a line."""

    sequence: int
    previous: str
    event: str
    torn: str

    @classmethod
    def of(cls, line: bytes) -> Link | None:
        """A line as a link; None when it is not one."""
        if len(line) > LONGEST:
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
class Finding:
    """Something about a log that somebody should know; `broken` when it cannot have happened by accident."""

    place: str
    text: str
    broken: bool

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a walk along the chain has shown."""

    lines: int
    first: int
    last: int
    head: str
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return not any(finding.broken for finding in self.findings)


@dataclass
class Walk:
    """A walk along the chain, line by line."""

    lines: int = 0
    first: int = 0
    last: int = 0
    head: str = GENESIS
    seen: set[str] = field(default_factory=set)
    """The hashes somebody asked for that were found."""
    wanted: frozenset[str] = frozenset()
    findings: list[Finding] = field(default_factory=list)
    _place: str = ""
    _torn: tuple[str, bytes] | None = None
    """Where lines are that are none, and what they say, until the next line explains them."""

    def step(self, line: bytes, place: str) -> None:
        """Look at the next line."""
        link = Link.of(line)
        if link is None:
            self._torn = (
                (place, line) if self._torn is None else (self._torn[0], self._torn[1] + b"\n" + line)
            )
            return
        self._explain(link)
        self._compare(link, place)
        self.head, self.last, self._place = digest(line), link.sequence, place
        self.lines += 1
        if self.head in self.wanted:
            self.seen.add(self.head)

    def end(self) -> Verdict:
        """What the walk has shown."""
        if self._torn is not None:
            place, _ = self._torn
            self._note(place, "the last line is torn; the next start of the server closes it", broken=False)
        for hash_ in sorted(self.wanted - self.seen):
            self._note("the log", f"no line has the hash `{hash_}`; its end was cut off, or it was rewritten")
        return Verdict(self.lines, self.first, self.last, self.head, tuple(self.findings))

    def _explain(self, link: Link) -> None:
        if self._torn is None:
            return
        place, torn = self._torn
        self._torn = None
        if link.event == REPAIRED and link.torn == digest(torn):
            self._note(place, "torn by a crash and closed at the next start", broken=False)
        else:
            self._note(place, "not a line of this log; it was changed or damaged after it was written")

    def _compare(self, link: Link, place: str) -> None:
        if not self.lines:
            self.first = link.sequence
            if link.sequence != 1 or link.previous != GENESIS:
                text = f"begins at line `{link.sequence}` of the log; the files before it are not here"
                self._note(place, text, broken=False)
        elif link.sequence != self.last + 1:
            self._note(place, _jump(self.last, link.sequence))
        elif link.previous != self.head:
            text = f"line `{link.sequence}` remembers another line before it; `{self._place}` was changed"
            self._note(place, text)

    def _note(self, place: str, text: str, *, broken: bool = True) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(place, text, broken))


def _jump(last: int, sequence: int) -> str:
    if sequence == last + 2:
        return f"line `{last + 1}` is missing"
    if sequence > last:
        return f"lines `{last + 1}` to `{sequence - 1}` are missing"
    return f"line `{sequence}` stands behind line `{last}`; lines were moved or copied"


def walk(lines: Iterable[tuple[bytes, str]], wanted: frozenset[str] = frozenset()) -> Verdict:
    """Walk along lines with their places."""
    steps = Walk(wanted=wanted)
    for line, place in lines:
        steps.step(line, place)
    return steps.end()
