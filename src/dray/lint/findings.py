"""What lint has to say: complaints about an object, and findings: complaints with a place in a file.

Theory of operation: a check knows an object and field paths, nothing of lines. It yields `Complaint`s. Those
about one document become `Finding`s at once, while the document is at hand. Those that only show when all
documents are known (a class that nobody defines) are `Charge`s, which say where they belong; `settled` reads
just the files concerned once more. So no document has to be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dray.lint.rules import RULES, Severity
from dray.lint.source_positions import place_of
from dray.manifests import Document, Position
from dray.manifests.documents import below
from dray.manifests.source import START


@dataclass(frozen=True, slots=True)
class Where:
    """Which object of which file, with the words to call it by."""

    source: str
    ordinal: int
    prefix: str
    subject: str


Inside = tuple[str, int]
"""The text of a value, and the offset of a character in it."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something to say about a field of an object; the path is that of the object as it was written."""

    rule: str
    path: str
    message: str
    expected: str = ""
    hint: str = ""
    rewrite: str = ""
    at_key: bool = False
    severity: Severity | None = None
    at: str = ""
    """Where to point when that is more exact than the path, for example at a key inside a map."""
    inside: Inside | None = None
    """Where to point inside a text value."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A complaint about an object seen earlier, and perhaps the other object it is at odds with."""

    where: Where
    complaint: Complaint
    other: tuple[Where, str] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to say about a place in a file."""

    rule: str
    severity: Severity
    source: str
    line: int
    column: int
    object: str
    path: str
    message: str
    expected: str = ""
    hint: str = ""
    rewrite: str = ""
    excerpt: str = ""


def placed(complaint: Complaint, document: Document, subject: str, at: Position | None = None) -> Finding:
    """A complaint about a document that is at hand."""
    position = at or _position(
        document, complaint.at or complaint.path, complaint.at_key or bool(complaint.at), complaint.inside
    )
    return _finding(complaint, document.source.name, subject, position, document.source.line(position.line))


def _position(document: Document, path: str, key: bool, inside: Inside | None) -> Position:
    return document.locate(path, key=key) if inside is None else place_of(document, path, *inside)


def _finding(complaint: Complaint, source: str, subject: str, position: Position, excerpt: str) -> Finding:
    return Finding(
        rule=complaint.rule,
        severity=complaint.severity or RULES[complaint.rule].severity,
        source=source,
        line=position.line,
        column=position.column,
        object=subject,
        path=complaint.path,
        message=complaint.message,
        expected=complaint.expected,
        hint=complaint.hint,
        rewrite=complaint.rewrite,
        excerpt=excerpt,
    )


Reopen = Callable[[str], Iterable[Document]]
"""Reads the documents of a file again, by the name of its source."""

_Spot = tuple[Where, str, bool, Inside | None]


def settled(charges: Iterable[Charge], reopen: Reopen) -> list[Finding]:
    """Charges as findings; every file they concern is read once."""
    charges = list(charges)
    spots: set[_Spot] = {_spot(charge) for charge in charges}
    spots |= {(*charge.other, False, None) for charge in charges if charge.other}
    places = _look_up(spots, reopen)
    found = []
    for charge in charges:
        position, excerpt = places[_spot(charge)]
        finding = _finding(charge.complaint, charge.where.source, charge.where.subject, position, excerpt)
        if charge.other:
            where, path = charge.other
            also = f"{where.source}:{places[where, path, False, None][0]}"
            finding = replace(finding, message=f"{finding.message}, see {also}")
        found.append(finding)
    return found


def _spot(charge: Charge) -> _Spot:
    complaint = charge.complaint
    return charge.where, complaint.path, complaint.at_key, complaint.inside


def _look_up(spots: Iterable[_Spot], reopen: Reopen) -> dict[_Spot, tuple[Position, str]]:
    found = dict.fromkeys(spots, (START, ""))
    wanted: dict[tuple[str, int], list[_Spot]] = defaultdict(list)
    for spot in found:
        wanted[spot[0].source, spot[0].ordinal].append(spot)
    for source in sorted({source for source, _ in wanted}):
        for document in reopen(source):
            for spot in wanted.get((source, document.ordinal), ()):
                where, path, at_key, inside = spot
                position = _position(document, below(where.prefix, path), at_key, inside)
                found[spot] = (position, document.source.line(position.line))
    return found
