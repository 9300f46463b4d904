"""Documents: one object as somebody wrote it, with a way to find each of its fields in the text.

Theory of operation: `read` yields the documents of a file one at a time and keeps none of them, so that a
large file costs as much memory as its largest document. A document knows its source and can `locate` any
field path; for JSON the tree of places is only built when the first place is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dray.manifests import json_reader, yaml_reader
from dray.manifests.document_tree import DuplicateKey, Node, locate
from dray.manifests.source import Position, ReadError, Source

_Found = tuple[Node, tuple[DuplicateKey, ...]]


class _Places:
    """The tree of a document, built when it is first needed."""

    def __init__(self, build: Callable[[], _Found]) -> None:
        self._build = build

    @cached_property
    def found(self) -> _Found:
        return self._build()


@dataclass(frozen=True, slots=True)
class Document:
    """One value of a manifest, or one item of a list in it; `prefix` is the way from the list to the item."""

    source: Source
    ordinal: int
    value: Any
    places: _Places
    duplicates: tuple[DuplicateKey, ...] = ()
    prefix: str = ""

    def locate(self, path: str, *, key: bool = False) -> Position:
        """Where a field stands, or its nearest parent that exists; `key` asks for the key itself."""
        return locate(self.places.found[0], below(self.prefix, path), key=key)


def below(prefix: str, path: str) -> str:
    """A field path seen from further up."""
    return f"{prefix}.{path}" if prefix and path and path[0] != "[" else prefix + path


def read(source: Source) -> Iterator[Document]:
    """The documents of a text, one at a time; raises `ReadError` where it cannot be read any further."""
    if not json_reader.looks_like_json(source.text):
        yield from _read_yaml(source)
        return
    documents = _read_json(source)
    try:
        first = next(documents)
    except ReadError as not_json:
        if source.name.endswith(".json"):
            raise not_json from None
        yield from _read_yaml(source)  # a map in braces is YAML too
        return
    yield first
    yield from documents


def _read_yaml(source: Source) -> Iterator[Document]:
    for ordinal, tree in enumerate(yaml_reader.trees(source)):
        found = (tree.root, tree.duplicates)
        yield Document(source, ordinal, tree.root.value, _Places(lambda found=found: found), tree.duplicates)  # type: ignore[misc]


def _read_json(source: Source) -> Iterator[Document]:
    for ordinal, (start, value, twice) in enumerate(json_reader.values(source)):
        places = _Places(lambda start=start: json_reader.tree(source, start))  # type: ignore[misc]
        if value is not None:
            yield Document(source, ordinal, value, places, places.found[1] if twice else ())


def expanded(document: Document) -> Iterator[Document]:
    """The objects in a document: the items of a list, or the document itself.

    Items of a typed list (`ResourceClaimList`) may leave out what the list already says about them.
    """
    value = document.value
    if not is_list(value):
        yield document
        return
    implied = implied_by(value)
    for index, item in enumerate(value["items"]):
        if isinstance(item, Mapping):
            item = {**{k: v for k, v in implied.items() if k not in item}, **item}
        prefix = below(document.prefix, f"items[{index}]")
        inner = Document(document.source, document.ordinal, item, document.places, (), prefix)
        yield from expanded(inner)


def implied_by(listing: Mapping[str, Any]) -> dict[str, Any]:
    """What a typed list says about its items, so that they need not say it themselves."""
    kind = listing["kind"].removesuffix("List")
    return {"apiVersion": listing.get("apiVersion"), "kind": kind} if kind else {}


def is_list(value: Any) -> bool:
    """Whether a value is a list object, as `kubectl get -o yaml` prints them."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("kind"), str)
        and value["kind"].endswith("List")
        and isinstance(value.get("items"), list)
    )
