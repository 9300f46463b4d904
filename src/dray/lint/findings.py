"""What lint has to say: complaints about an object, and findings: complaints with a place in a file.

Theory of operation: a check knows an object and field paths, nothing of lines. It yields `FieldFinding`s.
Those about one document become `LintFinding`s at once, while the document is at hand. Those that only show
when all documents are known (a class that nobody defines) are `DeferredFinding`s, which say where they
belong; `resolve_deferred` reads just the files concerned once more. So no document has to be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dray.lint.rules import RULES, Severity
from dray.lint.source_positions import locate_character
from dray.manifests import ManifestDocument, TextPosition
from dray.manifests.documents import join_path
from dray.manifests.source import START_POSITION


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Which object of which file, with the words to call it by."""

    source: str
    ordinal: int
    prefix: str
    subject: str


TextOffset = tuple[str, int]
"""The text of a value, and the offset of a character in it."""


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """Something to say about a field of an object; the path is that of the object as it was written."""

    rule: str
    path: str
    message: str
    expected: str = ""
    hint: str = ""
    rewrite: str = ""
    at_key: bool = False
    severity: Severity | None = None
    pointer_path: str = ""
    """Where to point when that is more exact than the path, for example at a key inside a map."""
    text_offset: TextOffset | None = None
    """Where to point inside a text value."""


@dataclass(frozen=True, slots=True)
class DeferredFinding:
    """A complaint about an object seen earlier, and perhaps the other object it is at odds with."""

    location: ObjectLocation
    finding: FieldFinding
    other: tuple[ObjectLocation, str] | None = None


@dataclass(frozen=True, slots=True)
class LintFinding:
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


def locate_finding(
    finding: FieldFinding,
    document: ManifestDocument,
    subject: str,
    known_position: TextPosition | None = None,
) -> LintFinding:
    """A complaint about a document that is at hand."""
    position = known_position or _find_position(
        document,
        finding.pointer_path or finding.path,
        finding.at_key or bool(finding.pointer_path),
        finding.text_offset,
    )
    return _build_lint_finding(
        finding, document.source.name, subject, position, document.source.get_line(position.line)
    )


def _find_position(
    document: ManifestDocument, path: str, key: bool, text_offset: TextOffset | None
) -> TextPosition:
    return (
        document.locate(path, key=key)
        if text_offset is None
        else locate_character(document, path, *text_offset)
    )


def _build_lint_finding(
    finding: FieldFinding, source: str, subject: str, position: TextPosition, excerpt: str
) -> LintFinding:
    return LintFinding(
        rule=finding.rule,
        severity=finding.severity or RULES[finding.rule].severity,
        source=source,
        line=position.line,
        column=position.column,
        object=subject,
        path=finding.path,
        message=finding.message,
        expected=finding.expected,
        hint=finding.hint,
        rewrite=finding.rewrite,
        excerpt=excerpt,
    )


DocumentReader = Callable[[str], Iterable[ManifestDocument]]
"""Reads the documents of a file again, by the name of its source."""

_FieldLocation = tuple[ObjectLocation, str, bool, TextOffset | None]


def resolve_deferred(deferred: Iterable[DeferredFinding], reopen: DocumentReader) -> list[LintFinding]:
    """Charges as findings; every file they concern is read once."""
    deferred = list(deferred)
    spots: set[_FieldLocation] = {_get_field_location(charge) for charge in deferred}
    spots |= {(*charge.other, False, None) for charge in deferred if charge.other}
    places = _find_positions(spots, reopen)
    found = []
    for charge in deferred:
        position, excerpt = places[_get_field_location(charge)]
        finding = _build_lint_finding(
            charge.finding, charge.location.source, charge.location.subject, position, excerpt
        )
        if charge.other:
            where, path = charge.other
            also = f"{where.source}:{places[where, path, False, None][0]}"
            finding = replace(finding, message=f"{finding.message}, see {also}")
        found.append(finding)
    return found


def _get_field_location(deferred: DeferredFinding) -> _FieldLocation:
    complaint = deferred.finding
    return deferred.location, complaint.path, complaint.at_key, complaint.text_offset


def _find_positions(
    locations: Iterable[_FieldLocation], reopen: DocumentReader
) -> dict[_FieldLocation, tuple[TextPosition, str]]:
    found = dict.fromkeys(locations, (START_POSITION, ""))
    wanted: dict[tuple[str, int], list[_FieldLocation]] = defaultdict(list)
    for spot in found:
        wanted[spot[0].source, spot[0].ordinal].append(spot)
    for source in sorted({source for source, _ in wanted}):
        for document in reopen(source):
            for spot in wanted.get((source, document.ordinal), ()):
                where, path, at_key, inside = spot
                position = _find_position(document, join_path(where.prefix, path), at_key, inside)
                found[spot] = (position, document.source.get_line(position.line))
    return found
