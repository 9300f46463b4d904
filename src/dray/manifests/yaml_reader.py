"""YAML reader: text to document trees.

Theory of operation: the parser (libyaml, where PyYAML was built with it) turns text into a flat stream of
events; this module turns events into `DocumentNode`s with an explicit stack, so that hostile nesting meets
the limit of this module and never that of the interpreter. A map or list is a frame on the stack while it is
open. Aliases share the node they name, and their expansion is counted: a small document cannot stand for a
huge one.

Rules for this file: no tags but those of plain data, no objects, no values that JSON cannot hold.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from dray.api.decode_report import MAX_DEPTH
from dray.manifests.document_tree import DocumentNode, DuplicateKey, ListNode, MapNode, format_step
from dray.manifests.scalars import NON_FINITE, Scalar, resolve_scalar, to_key_text
from dray.manifests.source import START_POSITION, ManifestReadError, ManifestSource, TextPosition

try:
    from yaml._yaml import CParser as _Parser
except ImportError:  # PyYAML without libyaml: slower, same events
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class _Parser(Reader, Scanner, Parser):  # type: ignore[no-redef]
        """The pure Python parser of PyYAML."""

        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)


MAX_ALIASED: Final = 100_000
"""How many nodes the aliases of one document may stand for."""

_FORBIDDEN = re.compile("[\x7f-\x84\x86-\x9f\ufffe\uffff]")
_CORE = "tag:yaml.org,2002:"
_MAPS = (None, "!", _CORE + "map")
_LISTS = (None, "!", _CORE + "seq")
_MERGE = object()


class YamlTree:
    """A finished document: its root and its duplicate keys."""

    __slots__ = ("duplicates", "root")

    def __init__(self, root: DocumentNode, duplicates: tuple[DuplicateKey, ...] = ()) -> None:
        self.root = root
        self.duplicates = duplicates


def parse_trees(source: ManifestSource) -> Iterator[YamlTree]:
    """Yield every document of a YAML text that is not empty; raises `ManifestReadError` where the text is no
    longer YAML.
    """
    never = _FORBIDDEN.search(source.text)
    if never:
        raise source.build_error(never.start(), f"the character U+{ord(never[0]):04X} may not be in YAML")
    try:
        parser = _Parser(source.text)
        while (event := parser.get_event()) is not None:
            if isinstance(event, DocumentStartEvent):
                tree = _TreeBuilder(source, parser).build()
                if tree.root.value is not None:
                    yield tree
    except yaml.MarkedYAMLError as broken:
        raise _explain_yaml_error(source, broken) from None
    except yaml.YAMLError as broken:
        raise source.build_error(0, f"not YAML: {' '.join(str(broken).split())}") from None


class _Frame:
    """A map or list that is still open."""

    __slots__ = ("anchor", "key", "merged", "node")

    def __init__(self, node: MapNode | ListNode, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: tuple[Any, TextPosition] | None = None
        self.merged: list[DocumentNode] = []


class _TreeBuilder:
    """Builds one document from the events up to its end."""

    def __init__(self, source: ManifestSource, parser: Any) -> None:
        self._source = source
        self._parser = parser
        self._stack: list[_Frame] = []
        self._anchors: dict[str, DocumentNode | None] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._aliased = 0
        self._resolved: dict[str, Scalar] = {}
        self._duplicates: list[DuplicateKey] = []

    def build(self) -> YamlTree:
        root: DocumentNode = DocumentNode(1, 1, None)
        take = self._EVENT_METHODS
        while not isinstance(event := self._parser.get_event(), DocumentEndEvent):
            done = take[type(event)](self, event)
            if done is not None:
                root = done
        return YamlTree(root, tuple(self._duplicates))

    def _take_scalar(self, event: ScalarEvent) -> DocumentNode | None:
        return self._attach(self._build_scalar(event), event.anchor)

    def _take_alias(self, event: AliasEvent) -> DocumentNode | None:
        return self._attach(self._resolve_alias(event), None)

    def _open_map(self, event: MappingStartEvent) -> None:
        self._open(MapNode(*self._get_position(event)), event, _MAPS)

    def _open_list(self, event: SequenceStartEvent) -> None:
        self._open(ListNode(*self._get_position(event)), event, _LISTS)

    def _close(self, _event: MappingEndEvent | SequenceEndEvent) -> DocumentNode | None:
        frame = self._stack.pop()
        if frame.merged and isinstance(frame.node, MapNode):
            _merge_fields(frame.node, frame.merged)
        return self._attach(frame.node, frame.anchor)

    _EVENT_METHODS: Final[Mapping[type, Any]] = {
        ScalarEvent: _take_scalar,
        AliasEvent: _take_alias,
        MappingStartEvent: _open_map,
        SequenceStartEvent: _open_list,
        MappingEndEvent: _close,
        SequenceEndEvent: _close,
    }

    @staticmethod
    def _get_position(event: Any) -> tuple[int, int]:
        mark = event.start_mark
        return mark.line + 1, mark.column + 1

    def _open(self, node: MapNode | ListNode, event: Any, tags: tuple[str | None, ...]) -> None:
        if event.tag not in tags:
            raise self._source.build_error(node.position, _explain_tag(event.tag))
        if len(self._stack) >= MAX_DEPTH:
            raise self._source.build_error(node.position, f"nested more than {MAX_DEPTH} levels deep")
        if self._stack and isinstance(self._stack[-1].node, MapNode) and self._stack[-1].key is None:
            raise self._source.build_error(node.position, "a key must be text, not a list or a map")
        if event.anchor:
            self._anchors[event.anchor] = None  # an alias to a node that is still open would be a cycle
        self._stack.append(_Frame(node, event.anchor))

    def _attach(self, node: DocumentNode, anchor: str | None) -> DocumentNode | None:
        """Put a complete node into its parent; returns the node itself when it is the root."""
        if anchor:
            self._anchors[anchor] = node
        if not self._stack:
            return node
        frame = self._stack[-1]
        if isinstance(frame.node, ListNode):
            frame.node.append(node)
        elif frame.key is None:
            frame.key = (self._read_key(node), node.position)
        else:
            (key, place), frame.key = frame.key, None
            self._set_field(frame, key, place, node)
        return None

    def _read_key(self, node: DocumentNode) -> Any:
        if node.value is _MERGE:
            return _MERGE
        text = to_key_text(node.value)
        if text is None:
            found = "null" if node.value is None else "a list or a map"
            raise self._source.build_error(node.position, f"a key must be text, not {found}")
        return text

    def _set_field(self, frame: _Frame, key: Any, place: TextPosition, node: DocumentNode) -> None:
        assert isinstance(frame.node, MapNode)
        if node.value is _MERGE:
            node.value = "<<"
        if key is _MERGE:
            frame.merged.extend(self._list_mergeable(node))
            return
        earlier = frame.node.set_field(key, place, node)
        if earlier is not None:
            self._duplicates.append(DuplicateKey(self._build_path(key), key, earlier, place))

    def _list_mergeable(self, node: DocumentNode) -> list[DocumentNode]:
        wanted = node.items if isinstance(node, ListNode) else [node]
        for item in wanted:
            if not isinstance(item, MapNode):
                raise self._source.build_error(
                    item.position, "`<<` merges maps; expected a map or a list of maps"
                )
        return list(wanted)

    def _build_path(self, key: str) -> str:
        steps = []
        for frame in self._stack[:-1]:
            if isinstance(frame.node, ListNode):
                steps.append(f"[{len(frame.node.items)}]")
            elif frame.key is not None:
                steps.append("" if frame.key[0] is _MERGE else format_step(frame.key[0]))
        return "".join([*steps, format_step(key)]).removeprefix(".")

    def _build_scalar(self, event: ScalarEvent) -> DocumentNode:
        line, column = self._get_position(event)
        plain, quoted = event.implicit
        word: str = event.value
        if plain and event.tag is None:
            if word == "<<":
                return DocumentNode(line, column, self._resolve_merge_key())
            if word in NON_FINITE:
                raise self._source.build_error(
                    TextPosition(line, column),
                    f"`{word}` is no number that JSON can hold; quote it if it is text",
                )
            return DocumentNode(line, column, self._resolve_cached(word))
        if quoted or event.tag == "!":  # `!` means text, whatever it looks like
            return DocumentNode(line, column, word)
        return DocumentNode(
            line, column, self._resolve_tagged(word, event.tag or "", TextPosition(line, column))
        )

    def _resolve_cached(self, word: str) -> Scalar:
        """Resolve a word; each distinct word is resolved and stored once."""
        if word not in self._resolved:
            self._resolved[word] = resolve_scalar(word)
        return self._resolved[word]

    def _resolve_merge_key(self) -> Any:
        inside_map = self._stack and isinstance(self._stack[-1].node, MapNode) and self._stack[-1].key is None
        return _MERGE if inside_map else "<<"

    def _resolve_tagged(self, word: str, tag: str, at: TextPosition) -> Scalar:
        wanted = tag.removeprefix(_CORE)
        if wanted not in ("str", "int", "float", "bool", "null", "timestamp") or not tag.startswith(_CORE):
            raise self._source.build_error(at, _explain_tag(tag))
        if wanted in ("str", "timestamp"):
            return word
        value = resolve_scalar(word)
        if _TAG_BY_TYPE.get(type(value)) not in _ACCEPTED_TAGS[wanted]:
            raise self._source.build_error(at, f"`{word}` is not a value of tag `!!{wanted}`")
        return value

    def _resolve_alias(self, event: AliasEvent) -> DocumentNode:
        at = TextPosition(*self._get_position(event))
        if event.anchor not in self._anchors:
            raise self._source.build_error(
                at, f"alias `*{event.anchor}` names no anchor; expected `&{event.anchor}` above"
            )
        node = self._anchors[event.anchor]
        if node is None:
            raise self._source.build_error(
                at, f"alias `*{event.anchor}` is inside what it names, which would never end"
            )
        size, height = self._measure(node)
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise self._source.build_error(
                at, f"aliases stand for more than {MAX_ALIASED:,} values; write less by alias"
            )
        if len(self._stack) + height > MAX_DEPTH:
            raise self._source.build_error(at, f"nested more than {MAX_DEPTH} levels deep")
        return node

    def _measure(self, node: DocumentNode) -> tuple[int, int]:
        """Count the values of a node with its aliases expanded, and their depth."""
        known = self._sizes.get(id(node))
        if known is None:
            below = [self._measure(child) for child in node.iterate_children()]
            known = (1 + sum(size for size, _ in below), 1 + max((height for _, height in below), default=0))
            self._sizes[id(node)] = known
        return known


_TAG_BY_TYPE: dict[type, str] = {bool: "bool", type(None): "null", int: "int", str: "str"}
_ACCEPTED_TAGS = {"int": ("int",), "float": ("int", None), "bool": ("bool",), "null": ("null",)}


def _merge_fields(node: MapNode, merged: list[DocumentNode]) -> None:
    """Add the fields of merged maps; the map's own fields win, then the earlier of the merged maps."""
    for other in merged:
        assert isinstance(other, MapNode)
        for key, place, child in zip(other.value, other.key_positions, other.items, strict=True):
            if key not in node.value:
                node.set_field(key, place, child)


def _explain_tag(tag: str) -> str:
    shown = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
    return f"tag `{shown}` is not plain data; expected text, numbers, booleans, lists and maps only"


_TAB = "a tab cannot indent YAML; use spaces"
_MESSAGES = (
    ("ound character '\\t' that cannot start any token", _TAB),
    ("found character that cannot start any token", "this character cannot start a value; quote the text"),
    ("mapping values are not allowed", "`: ` is not allowed here; check the indentation, or quote the text"),
    (
        "could not find expected ':'",
        "expected `: ` after a key; check the indentation of this and the line above",
    ),
    ("did not find expected key", "expected a key at the same indentation as the keys above"),
    ("did not find expected '-' indicator", "expected `- ` at the same indentation as the items above"),
    ("did not find expected <document start>", "a document ended above; expected `---` before another one"),
    ("found unexpected end of stream", "the text ends inside a quoted string"),
)


def _explain_yaml_error(source: ManifestSource, broken: yaml.MarkedYAMLError) -> ManifestReadError:
    mark = broken.problem_mark or broken.context_mark
    # A text that ends too early is broken at its last character, not on a line that does not exist.
    at = source.get_position(min(mark.index, len(source.text.rstrip()))) if mark else START_POSITION
    problem = str(broken.problem or broken.context or broken)
    if "cannot start any token" in problem and source.get_line(at.line)[at.column - 1 : at.column] == "\t":
        problem = _TAB
    problem = next((ours for theirs, ours in _MESSAGES if theirs in problem), problem)
    if broken.context and broken.context_mark and broken.context_mark.line < at.line - 1:
        problem += f" ({broken.context} that starts at line {broken.context_mark.line + 1})"
    return source.build_error(at, problem)


def has_comments(source: ManifestSource) -> bool:
    """Whether a YAML text has comments, which documents do not keep; JSON and invalid YAML have none."""
    inside: list[tuple[int, int]] = []
    try:
        parser = _Parser(source.text)
        while (event := parser.get_event()) is not None:
            start, end = event.start_mark, event.end_mark
            if isinstance(event, ScalarEvent) and start and end and start.index < end.index:
                inside.append((start.index, end.index))
    except yaml.YAMLError:
        return False
    return any(not _is_within(inside, found.start()) for found in _HASH.finditer(source.text))


_HASH = re.compile(r"(?:(?<=\s)|^)#")


def _is_within(spans: list[tuple[int, int]], index: int) -> bool:
    """Whether an index lies in one of the spans, which are sorted."""
    place = bisect_right(spans, (index, len(spans) and spans[-1][1] + 1))
    return place > 0 and index < spans[place - 1][1]
