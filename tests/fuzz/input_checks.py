"""Checks of one input: what must hold when it is decoded, validated, converted, linted and written.

Only readers may raise, and only an `InputError`. What was decoded must be the same after it is encoded and
decoded again, in every version; the two ways of decoding must agree; lint must report what the codec refuses.
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
from tests.fuzz.valid_documents import BY_HAND, TIME

ALL_ON = GateSet.from_defaults()
NAME = "input.yaml"
HUGE = re.compile(r"\d{300}|[eE][+-]?\d{3}")


class BrokenLawError(AssertionError):
    """A property does not hold."""


def require(holds: bool, words: str) -> None:
    if not holds:
        raise BrokenLawError(words)


def check_document_input(document: Any, random: Random) -> str:
    """Check a document; returns the outcome in a word."""
    try:
        decoded = codec.decode_document(document)
    except InputError as refused:
        str(refused)
        if not find_non_json_values(document):
            text = write_json(document)
            require(_is_refused(text), "a document is refused, but its bytes are not")
            _check_manifest(text, random)
        return "refused"
    text = write_json(document)
    require(_are_equal(codec.decode(text), decoded), "bytes and document decode to different objects")
    _check_decoded(decoded, random)
    _check_manifest(text, random)
    return "decoded, with unknown fields" if decoded.unknown_fields else "decoded"


def check_bytes_input(data: bytes, random: Random) -> str:
    """Check bytes; returns the outcome in a few words."""
    outcome = "not JSON"
    try:
        find_duplicate_fields(data)
        read_json(data)
        outcome = "JSON, no object"
        _check_decoded(codec.decode(data), random)
        outcome = "JSON, decoded"
    except InputError as refused:
        str(refused)
    return f"{outcome}, {_check_manifest(data, random)}"


def _are_equal(one: codec.DecodedObject, other: codec.DecodedObject) -> bool:
    same = _reread(one.document) == _reread(other.document)
    return same and replace(one, document=None) == replace(other, document=None)


def _reread(document: Any) -> Any:
    """Plain values as our reader gives them: a float is not always equal to the number it is written as."""
    return read_json(write_json(document))


def _is_refused(text: bytes) -> bool:
    try:
        codec.decode(text)
    except InputError:
        return True
    return False


# --- objects ---


def _choose_gates(random: Random) -> GateSet:
    on: set[str] = set()
    for name in GATES:
        if on.issuperset(GATES[name].requires) and random.random() < 0.6:
            on.add(name)
    return GateSet(frozenset(on))


def _check_decoded(decoded: codec.DecodedObject, random: Random) -> None:
    """Check an object that was decoded."""
    for unknown in decoded.unknown_fields:
        str(unknown)
    if decoded.kind.open:
        _check_open_object(decoded, random)
    else:
        _check_closed_object(decoded, random)
    _validate(decoded, apply_defaults(decoded.object, now=TIME), random)


def _check_open_object(decoded: codec.DecodedObject, random: Random) -> None:
    document = decoded.document
    read_once = _reread(document)
    require(_reread(read_once) == read_once, "the document of an open object does not round-trip")
    gates = _choose_gates(random)
    kept = drop_disabled_fields(decoded.kind, document, None, gates).object
    require(drop_disabled_fields(decoded.kind, kept, None, gates).object is kept, "dropping twice drops more")
    require(
        drop_disabled_fields(decoded.kind, document, document, gates).object is document,
        "fields in use are dropped",
    )


def _check_closed_object(decoded: codec.DecodedObject, random: Random) -> None:
    kind, obj = decoded.kind, decoded.object
    for version in kind.versions:
        text = codec.encode(obj, version)
        again = codec.decode(text)
        require(
            again.object == obj and not again.unknown_fields, f"the object does not come back from {version}"
        )
        require(codec.encode(again.object, version) == text, f"the text of {version} does not come back")
    filled = apply_defaults(obj, now=TIME)
    require(apply_defaults(filled, now="2030-01-01T00:00:00Z") is filled, "filling twice fills more")
    gates = _choose_gates(random)
    kept = drop_disabled_fields(kind, obj, None, gates).object
    require(drop_disabled_fields(kind, kept, None, gates).object is kept, "dropping twice drops more")
    require(
        drop_disabled_fields(kind, obj, None, ALL_ON).object is obj, "something is dropped with every gate on"
    )
    require(codec.decode(codec.encode(kept)).object == kept, "what is left after dropping does not come back")


_OLD: dict[type, Any] = {}
for _document in BY_HAND:
    _decoded = codec.decode_document(_document)
    _OLD[type(_decoded.object)] = apply_defaults(_decoded.object, now=TIME)


def _validate(decoded: codec.DecodedObject, obj: Any, random: Random) -> None:
    errors = [*validate_create(obj), *validate_stored(obj), *validate_update(obj, obj)]
    old = _OLD.get(type(obj), obj)  # opaque kinds have no example
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


def _check_manifest(data: bytes, random: Random) -> str:
    """Read bytes as a manifest; some are JSON, but not allowed in a file."""
    try:
        count = _lint(data, random)
    except InputError as refused:
        str(refused)
        return "no manifest"
    return "manifest" if count else "empty manifest"


def _lint(data: bytes, random: Random) -> int:
    """Lint bytes as a file, and write some of its documents; returns the number of documents."""
    source = ManifestSource.decode(NAME, data)
    gates, count = _choose_gates(random), 0
    facts: list[ObjectFacts] = []
    for document in read_documents(source):
        count += 1
        inspected = inspect_document(document, gates, now=TIME)
        facts += inspected.facts
        said = bool(inspected.findings)
        require(
            said or not any(map(_is_undecodable, expand_items(document))),
            "lint reports nothing about what is refused",
        )
        if count % 8 == random.randrange(8):
            _check_written_manifest(document)
    resolve_deferred(crosscheck(facts, complete=True), lambda _name: read_documents(source))
    return count


def _is_undecodable(item: ManifestDocument) -> bool:
    """Whether the codec refuses a document of a kind that lint checks; lint skips opaque kinds."""
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


def _check_written_manifest(document: ManifestDocument) -> None:
    for written in (to_json([document.value]), to_yaml([document.value])):
        if HUGE.search(written):  # no API server reads such a number, and the YAML reader refuses it
            continue
        try:
            again = [
                document.value for document in read_documents(ManifestSource.decode(NAME, written.encode()))
            ]
        except InputError as refused:
            raise BrokenLawError("a manifest that is written cannot be read") from refused
        require(again == [document.value], "a manifest that is written does not read the same")
