"""Documents of a manifest: one object each, with the position of every field in the text.

Theory of operation: `read_documents` yields the documents of a file one at a time and keeps none of them, so
that a large file needs as much memory as its largest document. A document has a reference to its source and
can `locate` any field path; for JSON the tree of positions is only built when the first position is
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dray.manifests import json_reader, yaml_reader
from dray.manifests.document_tree import DocumentNode, DuplicateKey, locate_field
from dray.manifests.source import ManifestReadError, ManifestSource, TextPosition

_TreeWithDuplicates = tuple[DocumentNode, tuple[DuplicateKey, ...]]


class _LazyTree:
    """The tree of a document, built on first use."""

    def __init__(self, build: Callable[[], _TreeWithDuplicates]) -> None:
        self._build = build

    @cached_property
    def tree(self) -> _TreeWithDuplicates:
        return self._build()


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One value of a manifest, or one item of a list in it; `prefix` is the path of the item in it."""

    source: ManifestSource
    ordinal: int
    value: Any
    tree: _LazyTree
    duplicates: tuple[DuplicateKey, ...] = ()
    prefix: str = ""

    def locate(self, path: str, *, key: bool = False) -> TextPosition:
        """Return the position of a field, or of its nearest parent; `key` asks for the key itself."""
        return locate_field(self.tree.tree[0], join_path(self.prefix, path), key=key)


def join_path(prefix: str, path: str) -> str:
    """Join a field path to the path of its parent."""
    return f"{prefix}.{path}" if prefix and path and path[0] != "[" else prefix + path


def read_documents(source: ManifestSource) -> Iterator[ManifestDocument]:
    """Yield the documents of a text, one at a time; raises `ManifestReadError` where reading must stop."""
    if not json_reader.looks_like_json(source.text):
        yield from _read_yaml(source)
        return
    documents = _read_json(source)
    try:
        first = next(documents)
    except ManifestReadError as not_json:
        if source.name.endswith(".json"):
            raise not_json from None
        yield from _read_yaml(source)  # a map in braces is YAML too
        return
    yield first
    yield from documents


def _read_yaml(source: ManifestSource) -> Iterator[ManifestDocument]:
    for ordinal, tree in enumerate(yaml_reader.parse_trees(source)):
        found = (tree.root, tree.duplicates)
        lazy = _LazyTree(lambda found=found: found)  # type: ignore[misc]
        yield ManifestDocument(source, ordinal, tree.root.value, lazy, tree.duplicates)


def _read_json(source: ManifestSource) -> Iterator[ManifestDocument]:
    for ordinal, (start, value, twice) in enumerate(json_reader.parse_values(source)):
        places = _LazyTree(lambda start=start: json_reader.build_tree(source, start))  # type: ignore[misc]
        if value is not None:
            yield ManifestDocument(source, ordinal, value, places, places.tree[1] if twice else ())


def expand_items(document: ManifestDocument) -> Iterator[ManifestDocument]:
    """Yield the objects in a document: the items of a list, or the document itself.

    Items of a typed list (`ResourceClaimList`) may leave out `apiVersion` and `kind`.
    """
    value = document.value
    if not is_list_object(value):
        yield document
        return
    implied = infer_item_type(value)
    for index, item in enumerate(value["items"]):
        if isinstance(item, Mapping):
            item = {**{k: v for k, v in implied.items() if k not in item}, **item}
        prefix = join_path(document.prefix, f"items[{index}]")
        inner = ManifestDocument(document.source, document.ordinal, item, document.tree, (), prefix)
        yield from expand_items(inner)


def infer_item_type(listing: Mapping[str, Any]) -> dict[str, Any]:
    """Return `apiVersion` and `kind` of the items of a typed list."""
    kind = listing["kind"].removesuffix("List")
    return {"apiVersion": listing.get("apiVersion"), "kind": kind} if kind else {}


def is_list_object(value: Any) -> bool:
    """Whether a value is a list object, as `kubectl get -o yaml` prints them."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("kind"), str)
        and value["kind"].endswith("List")
        and isinstance(value.get("items"), list)
    )
