"""The way of one input through every door, and what must be true of it at each.

Nothing but an `InputError` may ever come out of a door, and only out of those that read. What was read must
come back exactly when it is written and read again, in every version; the two ways of decoding must agree;
what the codec refuses, lint must have words for.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from msgspec.structs import replace

from dray.api import codec, conversion
from dray.api.json_text import find_duplicate_fields, find_non_json_values, read_json, write_json
from dray.api.kinds import find_kind, split_api_version
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import drop_disabled_fields
from dray.api.validation import (
    collect_warnings,
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from dray.errors import InputError
from dray.gates import GATES, GateSet
from dray.lint import ObjectFacts, crosscheck, inspect_document, resolve_deferred
from dray.manifests import ManifestDocument, ManifestSource, expand_items, read_documents, to_json, to_yaml
from tests.fuzz.sound import BY_HAND, TIME

ALL_ON = GateSet.from_defaults()
NAME = "input.yaml"
HUGE = re.compile(r"\d{300}|[eE][+-]?\d{3}")


class BrokenLawError(AssertionError):
    """Something came out, but it is not what must come out."""


def law(holds: bool, words: str) -> None:
    if not holds:
        raise BrokenLawError(words)


def of_document(document: Any, random: Random) -> str:
    """Bring a document through the doors; what became of it, in a word."""
    try:
        decoded = codec.decode_document(document)
    except InputError as refused:
        str(refused)
        if not find_non_json_values(document):
            text = write_json(document)
            law(_refused(text), "a document is refused, but its bytes are not")
            _filed(text, random)
        return "refused"
    text = write_json(document)
    law(_alike(codec.decode(text), decoded), "bytes and document decode to different objects")
    _taken(decoded, random)
    _filed(text, random)
    return "decoded, with unknown fields" if decoded.unknown_fields else "decoded"


def of_bytes(data: bytes, random: Random) -> str:
    """Bring bytes through the doors; what became of them, in a word."""
    outcome = "not JSON"
    try:
        find_duplicate_fields(data)
        read_json(data)
        outcome = "JSON, no object"
        _taken(codec.decode(data), random)
        outcome = "JSON, decoded"
    except InputError as refused:
        str(refused)
    return f"{outcome}, {_filed(data, random)}"


def _alike(one: codec.DecodedObject, other: codec.DecodedObject) -> bool:
    same = _as_read(one.document) == _as_read(other.document)
    return same and replace(one, document=None) == replace(other, document=None)


def _as_read(document: Any) -> Any:
    """Plain values as our reader gives them: a float is not always equal to the number it is written as."""
    return read_json(write_json(document))


def _refused(text: bytes) -> bool:
    try:
        codec.decode(text)
    except InputError:
        return True
    return False


# --- objects ---


def _gates(random: Random) -> GateSet:
    on: set[str] = set()
    for name in GATES:
        if on.issuperset(GATES[name].requires) and random.random() < 0.6:
            on.add(name)
    return GateSet(frozenset(on))


def _taken(decoded: codec.DecodedObject, random: Random) -> None:
    """What is done with everything that was decoded."""
    for unknown in decoded.unknown_fields:
        str(unknown)
    if decoded.kind.open:
        _open(decoded, random)
    else:
        _closed(decoded, random)
    _judged(decoded, apply_defaults(decoded.object, now=TIME), random)


def _open(decoded: codec.DecodedObject, random: Random) -> None:
    document = decoded.document
    read_once = _as_read(document)
    law(_as_read(read_once) == read_once, "the document of an open object does not round-trip")
    gates = _gates(random)
    kept = drop_disabled_fields(decoded.kind, document, None, gates).object
    law(drop_disabled_fields(decoded.kind, kept, None, gates).object is kept, "dropping twice drops more")
    law(
        drop_disabled_fields(decoded.kind, document, document, gates).object is document,
        "fields in use are dropped",
    )


def _closed(decoded: codec.DecodedObject, random: Random) -> None:
    kind, obj = decoded.kind, decoded.object
    for version in kind.versions:
        text = codec.encode(obj, version)
        again = codec.decode(text)
        law(again.object == obj and not again.unknown_fields, f"the object does not come back from {version}")
        law(codec.encode(again.object, version) == text, f"the text of {version} does not come back")
    filled = apply_defaults(obj, now=TIME)
    law(apply_defaults(filled, now="2030-01-01T00:00:00Z") is filled, "filling twice fills more")
    gates = _gates(random)
    kept = drop_disabled_fields(kind, obj, None, gates).object
    law(drop_disabled_fields(kind, kept, None, gates).object is kept, "dropping twice drops more")
    law(
        drop_disabled_fields(kind, obj, None, ALL_ON).object is obj, "something is dropped with every gate on"
    )
    law(codec.decode(codec.encode(kept)).object == kept, "what is left after dropping does not come back")


_OLD: dict[type, Any] = {}
for _document in BY_HAND:
    _decoded = codec.decode_document(_document)
    _OLD[type(_decoded.object)] = apply_defaults(_decoded.object, now=TIME)


def _judged(decoded: codec.DecodedObject, obj: Any, random: Random) -> None:
    errors = [*validate_create(obj), *validate_stored(obj), *validate_update(obj, obj)]
    old = _OLD.get(type(obj), obj)  # kinds that are merely kept have no example
    for new, before in ((obj, old), (old, obj)):
        errors += validate_update(new, before)
        errors += validate_status_update(new, before)
    for error in errors:
        str(error)
        for version in decoded.kind.versions:
            conversion.translate_path(decoded.kind, version, error.path)
    for caution in collect_warnings(obj):
        str(caution)


# --- lint ---


def _filed(data: bytes, random: Random) -> str:
    """What bytes are to the reader of manifests: some are JSON, but no text that may stand in a file."""
    try:
        count = _linted(data, random)
    except InputError as refused:
        str(refused)
        return "no manifest"
    return "manifest" if count else "empty manifest"


def _linted(data: bytes, random: Random) -> int:
    """Lint bytes as a file, and write back what was in it; how many documents there were."""
    source = ManifestSource.decode(NAME, data)
    gates, count = _gates(random), 0
    facts: list[ObjectFacts] = []
    for document in read_documents(source):
        count += 1
        inspected = inspect_document(document, gates, now=TIME)
        facts += inspected.facts
        said = bool(inspected.findings)
        law(
            said or not any(map(_undecodable, expand_items(document))),
            "lint has no words for what is refused",
        )
        if count % 8 == random.randrange(8):
            _written_back(document)
    resolve_deferred(crosscheck(facts, complete=True), lambda _name: read_documents(source))
    return count


def _undecodable(item: ManifestDocument) -> bool:
    """Whether the codec refuses what lint looks at; kinds that are merely kept are none of its business."""
    value = item.value
    named = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else (None, None)
    if isinstance(named[0], str) and isinstance(named[1], str):
        kind = find_kind(split_api_version(named[0])[0], named[1])
        if kind is not None and kind.is_opaque:
            return False
    try:
        codec.decode_document(item.value)
    except InputError:
        return True
    return False


def _written_back(document: ManifestDocument) -> None:
    for written in (to_json([document.value]), to_yaml([document.value])):
        if HUGE.search(written):  # no API server reads such a number, and neither do we in YAML
            continue
        try:
            again = [
                document.value for document in read_documents(ManifestSource.decode(NAME, written.encode()))
            ]
        except InputError as refused:
            raise BrokenLawError("a manifest that is written cannot be read") from refused
        law(again == [document.value], "a manifest that is written does not read the same")
