"""Who owns which field after a write: managed fields, and server-side apply.

Theory of operation: an update makes its writer the owner of every field it changed and of no other; whoever
owned them loses them, and fields that are gone have no owner. An apply makes its writer the owner of exactly
the fields its configuration names, changed or not. Fields it named last time and does not name now are taken
out of the object unless somebody else owns them. Where it would change a field of somebody else there is a
conflict, unless it is forced. Fields that are the server's own have no owner: identity, versions, times.

A write through a subresource owns only what it may change: `status` nothing of the spec, and the main
resource nothing of a status that has a door of its own.

Rules for this file: pure; `now` is given, and documents come in and go out unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypedDict, Unpack

from dray.api.kinds import Kind
from dray.server.patch.errors import ApplyConflict, Conflict, malformed
from dray.server.patch.limits import check_depth
from dray.server.patch.managed_fields import last_applied
from dray.server.patch.managed_fields.apply import check_lists, laid_over, taken_out, with_parents
from dray.server.patch.managed_fields.entries import (
    APPLY,
    UPDATE,
    Document,
    Entry,
    capped,
    kept_entries,
    sent_entries,
    written,
)
from dray.server.patch.managed_fields.field_comparison import Comparison, compare, fields_of
from dray.server.patch.managed_fields.field_set import (
    SELF,
    Tree,
    cut,
    difference,
    intersection,
    members,
    union,
)
from dray.server.patch.schema.kind_structures import Structure, structure_of

__all__ = ["Applied", "ApplyConflict", "applied", "updated"]

_NO_OWNER: Final = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""Metadata that nobody owns."""

_STATUS_KEEPS: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {("", "Pod"): frozenset({"f:spec"}), ("", "Node"): frozenset({"f:spec"})}
)
"""What a write of the status cannot change, where it is not the usual."""

_USUAL_KEEPS: Final = frozenset({"f:spec", "f:metadata"})
_MAIN_KEEPS: Final = frozenset({"f:status"})
_NOTHING: Final[frozenset[str]] = frozenset()

_NAMED: Final[Tree] = {"f:metadata": {"f:name": {}}}
"""What every configuration names, so that metadata never goes as a whole."""

_RESETS: Final[tuple[list[Document], ...]] = ([], [{}])
"""What a client sends as managed fields to be rid of all of them."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The object after an apply, without its managed fields, and these."""

    document: Document
    managed_fields: list[Document]


def updated(
    kind: Kind, old: Document | None, new: Document, *, manager: str, now: str, subresource: str = ""
) -> list[Document]:
    """`metadata.managedFields` after a create, an update or a patch that made `new` of `old`.

    `new` carries the managed fields its client sent, if any: an empty list or a single empty entry asks to
    forget all of them, another list that can be read takes the place of the stored one.
    """
    stored = _stored(old)
    entries = _basis(stored, new, subresource)
    changed, removed = _difference(kind, old, new)
    changed = _own(changed, _kept_from(kind, subresource))
    if not changed and not removed and entries is None:
        return stored
    standing = kept_entries(stored) if entries is None else entries
    version = kind.internal_api_version
    after: list[Entry] = []
    mine: Entry | None = None
    for entry in standing:
        rest = entry.with_fields(cut(difference(entry.fields, changed), removed))
        if entry.is_writer(manager, UPDATE, version, subresource):
            mine = rest
        else:
            after.append(rest)
    if changed:
        fields = changed if mine is None else union(mine.fields, changed)
        mine = Entry(manager, UPDATE, version, fields, now, subresource)
    if mine is not None:
        after.append(mine)
    return written(capped([entry for entry in after if entry.fields]))


class Writer(TypedDict):
    """Who applies, when, and through which subresource."""

    manager: str
    now: str
    subresource: NotRequired[str]


def applied(
    kind: Kind,
    live: Document | None,
    configuration: Document,
    *,
    force: bool = False,
    **writer: Unpack[Writer],
) -> Applied:
    """The object after a server-side apply; raises `ApplyConflict` or `PatchError`."""
    manager, now, subresource = writer["manager"], writer["now"], writer.get("subresource", "")
    structure = structure_of(kind)
    _check_configuration(structure, configuration)
    stored = _stored(live)
    before = _bare(live or {})
    named = _own(_unowned(fields_of(structure, configuration)), _kept_from(kind, subresource))
    others: list[Entry] = []
    last: Entry | None = None
    for entry in kept_entries(stored):
        if entry.is_writer(manager, APPLY, kind.internal_api_version, subresource):
            last = entry
        else:
            others.append(entry)
    document = _pruned(structure, laid_over(structure, before, configuration), last, [named, *_sets(others)])
    comparison = _difference(kind, before, document)
    if not force:
        _check_conflicts(structure, manager, before, _taken(others, comparison))
    after = [
        entry.with_fields(cut(difference(entry.fields, comparison.changed), comparison.removed))
        for entry in others
    ]
    same = last is not None and last.fields == named and document == before
    mine = Entry(manager, APPLY, kind.internal_api_version, named, now, subresource)
    after.append(last if same and last is not None else mine)
    document = last_applied.renewed(document, configuration, manager)
    return Applied(document, written(after))


def _stored(document: Document | None) -> list[Document]:
    """The entries an object has."""
    if document is None:
        return []
    return document.get("metadata", {}).get("managedFields") or []


def _basis(stored: list[Document], new: Document, subresource: str) -> list[Entry] | None:
    """The entries that a client sent instead of the stored ones; None when it did not."""
    sent = new.get("metadata", {}).get("managedFields")
    if subresource or sent is None or sent == stored:
        return None
    if sent in _RESETS:
        return []
    return sent_entries(sent) or None


def _difference(kind: Kind, old: Document | None, new: Document) -> Comparison:
    """What differs between two objects, without what nobody owns."""
    structure = structure_of(kind)
    return compare(structure, _ownable(old) if old else {}, _ownable(new))


def _ownable(document: Document) -> Document:
    """The parts of an object that somebody may own."""
    rest = dict(document)
    rest.pop("apiVersion", None)
    rest.pop("kind", None)
    metadata = rest.get("metadata")
    if metadata is not None:
        rest["metadata"] = {name: value for name, value in metadata.items() if name not in _NO_OWNER}
    return rest


def _unowned(fields: Tree) -> Tree:
    """A set without the fields that nobody owns."""
    rest = {step: below for step, below in fields.items() if step not in ("f:apiVersion", "f:kind")}
    metadata = {step: b for step, b in rest.pop("f:metadata", {}).items() if step[2:] not in _NO_OWNER}
    metadata.pop(SELF, None)
    return {**rest, "f:metadata": metadata} if metadata else rest


def _kept_from(kind: Kind, subresource: str) -> frozenset[str]:
    """The parts of an object that a write through this door does not change."""
    if subresource == "status":
        return _STATUS_KEEPS.get((kind.group, kind.name), _USUAL_KEEPS)
    return _MAIN_KEEPS if not subresource and "status" in kind.subresources else _NOTHING


def _own(fields: Tree, kept: frozenset[str]) -> Tree:
    if kept.isdisjoint(fields):
        return fields
    return {step: below for step, below in fields.items() if step not in kept}


def _bare(document: Document) -> Document:
    """An object without its managed fields."""
    metadata = document.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return document
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**document, "metadata": rest}


def _check_configuration(structure: Structure, configuration: Any) -> None:
    if not isinstance(configuration, dict):
        raise malformed("an applied configuration is an object with `apiVersion`, `kind` and `metadata`")
    check_depth(configuration)
    metadata = configuration.get("metadata", {})
    if not isinstance(metadata, dict):
        raise malformed("`metadata` of an applied configuration is an object")
    if metadata.get("managedFields") is not None:
        raise malformed("metadata.managedFields must be nil")
    check_lists(structure, configuration)


def _sets(entries: list[Entry]) -> list[Tree]:
    return [entry.fields for entry in entries]


def _pruned(structure: Structure, merged: Document, last: Entry | None, owned: list[Tree]) -> Document:
    """The object without what the writer named last time and nobody names now."""
    if last is None:
        return merged
    everybody: Tree = _NAMED
    for fields in owned:
        everybody = union(everybody, fields)
    gone = difference(with_parents(structure, last.fields), with_parents(structure, everybody))
    rest: Document = taken_out(structure, merged, gone) if gone else merged
    return rest


def _taken(others: list[Entry], comparison: Comparison) -> list[tuple[Entry, Tree]]:
    """What an apply would change of others' fields."""
    taken = ((entry, intersection(entry.fields, comparison.changed)) for entry in others)
    return [(entry, fields) for entry, fields in taken if fields]


def _check_conflicts(
    structure: Structure, manager: str, live: Document, taken: list[tuple[Entry, Tree]]
) -> None:
    """Raise what stands against an apply without force."""
    if taken and manager == last_applied.KUBECTL:
        allowed = last_applied.still_as_applied(structure, live)
        taken = [(entry, difference(fields, allowed)) for entry, fields in taken]
    conflicts = [Conflict(entry.owner, path) for entry, fields in taken for path in members(fields)]
    if conflicts:
        raise ApplyConflict(conflicts)
