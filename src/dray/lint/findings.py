"""Findings: what a check reports about a field of an object, and the same with a position in a file.

Theory of operation: a check works on an object and field paths, not on lines. It yields `FieldFinding`s.
Those about one document become `LintFinding`s at once, while the document is in memory. Those that need all
documents (a class that no manifest defines) are `DeferredFinding`s, which carry the location of their object;
`resolve_deferred` reads only the files concerned once more. So no document has to be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

from dray.lint.rules import RULES, Severity
from dray.lint.source_positions import locate_character
from dray.manifests import ManifestDocument, TextPosition
from dray.manifests.documents import join_path
from dray.manifests.source import START_POSITION

THESE_MANIFESTS = "among these manifests"
"""What is searched for objects that others refer to, in messages."""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """The location of an object: its file, the document in it, and its name for messages."""

    source: str
    ordinal: int
    prefix: str
    subject: str


TextOffset = tuple[str, int]
"""The text of a value, and the offset of a character in it."""


@dataclass(frozen=True, slots=True)
class FindingText:
    """What a finding says, wherever it is; the path is that of the object as it was written."""

    rule: str
    path: str
    message: str
    expected: str = ""
    hint: str = ""
    rewrite: str = ""


@dataclass(frozen=True, slots=True)
class FieldFinding(FindingText):
    """A finding about a field of an object, before its position in a file is known."""

    at_key: bool = False
    severity: Severity | None = None
    pointer_path: str = ""
    """Where to point when that is more exact than the path, for example at a key inside a map."""
    text_offset: TextOffset | None = None
    """Where to point inside a text value."""


@dataclass(frozen=True, slots=True)
class DeferredFinding:
    """A finding about an object of an earlier document, and perhaps the other object it conflicts with."""

    location: ObjectLocation
    finding: FieldFinding
    other: tuple[ObjectLocation, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding(FindingText):
    """A finding with its severity and its position in a file."""

    severity: Severity
    source: str
    line: int
    column: int
    object: str = ""
    excerpt: str = ""


def locate_finding(
    finding: FieldFinding,
    document: ManifestDocument,
    subject: str,
    known_position: TextPosition | None = None,
) -> LintFinding:
    """Locate a finding in a document that is in memory."""
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
        **{name: getattr(finding, name) for name in _TEXT_FIELDS},
        severity=finding.severity or RULES[finding.rule].severity,
        source=source,
        line=position.line,
        column=position.column,
        object=subject,
        excerpt=excerpt,
    )


_TEXT_FIELDS = tuple(field.name for field in fields(FindingText))

DocumentReader = Callable[[str], Iterable[ManifestDocument]]
"""Reads the documents of a file again, by the name of its source."""

_FieldLocation = tuple[ObjectLocation, str, bool, TextOffset | None]


def resolve_deferred(deferred: Iterable[DeferredFinding], reopen: DocumentReader) -> list[LintFinding]:
    """Locate deferred findings; every file concerned is read once."""
    deferred = list(deferred)
    locations: set[_FieldLocation] = {_get_field_location(one) for one in deferred}
    locations |= {(*one.other, False, None) for one in deferred if one.other}
    positions = _find_positions(locations, reopen)
    found = []
    for one in deferred:
        position, excerpt = positions[_get_field_location(one)]
        finding = _build_lint_finding(
            one.finding, one.location.source, one.location.subject, position, excerpt
        )
        if one.other:
            where, path = one.other
            also = f"{where.source}:{positions[where, path, False, None][0]}"
            finding = replace(finding, message=f"{finding.message}, see {also}")
        found.append(finding)
    return found


def _get_field_location(deferred: DeferredFinding) -> _FieldLocation:
    finding = deferred.finding
    return deferred.location, finding.path, finding.at_key, finding.text_offset


def _find_positions(
    locations: Iterable[_FieldLocation], reopen: DocumentReader
) -> dict[_FieldLocation, tuple[TextPosition, str]]:
    found = dict.fromkeys(locations, (START_POSITION, ""))
    wanted: dict[tuple[str, int], list[_FieldLocation]] = defaultdict(list)
    for location in found:
        wanted[location[0].source, location[0].ordinal].append(location)
    for source in sorted({source for source, _ in wanted}):
        for document in reopen(source):
            for location in wanted.get((source, document.ordinal), ()):
                where, path, at_key, inside = location
                position = _find_position(document, join_path(where.prefix, path), at_key, inside)
                found[location] = (position, document.source.get_line(position.line))
    return found
