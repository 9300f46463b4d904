"""JSON reader: values fast, and trees with positions on request.

Theory of operation: most JSON is written by programs and valid, so the decoder of the standard library reads
it, without positions. Only when a position is needed, a small scanner walks the text a second time; it relies
on the text being valid JSON and records all positions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from dray.api.decode_report import MAX_DEPTH
from dray.manifests.document_tree import DocumentNode, DuplicateKey, ListNode, MapNode, format_step
from dray.manifests.scalars import parse_exact_number
from dray.manifests.source import ManifestSource

_SPACE = re.compile(r"[ \t\r\n]*")
_ATOM = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


def looks_like_json(text: str) -> bool:
    """Whether a text starts as JSON objects do."""
    return text[_skip_space(text, 0) :][:1] in ("{", "[")


def parse_values(source: ManifestSource) -> Iterator[tuple[int, Any, bool]]:
    """Yield every JSON value of a text: its offset, the value, and whether a map has a key twice.

    Raises `ManifestReadError` where the text is no longer JSON.
    """
    twice = False

    def note_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        made = dict(pairs)
        twice = twice or len(made) != len(pairs)
        return made

    decoder = json.JSONDecoder(
        object_pairs_hook=note_duplicates, parse_float=_parse_fraction, parse_constant=_refuse_constant
    )
    index = _skip_space(source.text, 0)
    while index < len(source.text):
        twice = False
        try:
            value, end = decoder.raw_decode(source.text, index)
        except json.JSONDecodeError as broken:
            raise source.build_error(
                broken.pos, f"not JSON: {broken.msg[:1].lower()}{broken.msg[1:]}"
            ) from None
        except RecursionError:
            raise source.build_error(index, _TOO_DEEP) from None
        except ValueError as broken:  # an invalid number
            raise source.build_error(index, f"not JSON: {broken}") from None
        if _measure_depth(value) > MAX_DEPTH:
            raise source.build_error(index, _TOO_DEEP)
        half = _SURROGATE.search(source.text, index, end)
        if half and not _is_valid_unicode(value):
            raise source.build_error(half.start(), f"not JSON: `{half[0]}` alone is half a character")
        yield index, value, twice
        index = _skip_space(source.text, end)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Surrogates: valid in pairs, which the decoder joins, and invalid alone."""


def _is_valid_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


def _skip_space(text: str, index: int) -> int:
    found = _SPACE.match(text, index)
    assert found is not None
    return found.end()


def _parse_fraction(digits: str) -> int | Decimal:
    number = parse_exact_number(digits)
    if number is None:
        raise ValueError(f"the number `{digits[:40]}` is too large")
    return number


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"`{word}` is no number that JSON can hold")


def _measure_depth(value: Any) -> int:
    """Return how deep a value is nested, up to the limit."""
    level = _list_containers([value])
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [found for outer in level for found in _list_containers(outer)]
    return depth


def _list_containers(outer: Any) -> list[Any]:
    inner = outer.values() if isinstance(outer, dict) else outer
    return [item for item in inner if isinstance(item, dict | list)]


def build_tree(source: ManifestSource, start: int) -> tuple[DocumentNode, tuple[DuplicateKey, ...]]:
    """Build the tree of the valid JSON value that starts here, with all positions."""
    scanner = _Scanner(source)
    root, _ = scanner.scan_value(start, "")
    return root, tuple(scanner.duplicates)


class _Scanner:
    """Scans valid JSON and records positions; recursion is bounded because `parse_values` has checked the
    text.
    """

    def __init__(self, source: ManifestSource) -> None:
        self._source = source
        self.duplicates: list[DuplicateKey] = []

    def scan_value(self, index: int, path: str) -> tuple[DocumentNode, int]:
        text = self._source.text
        line, column = self._source.get_position(index)
        if text[index] == "{":
            return self._scan_map(MapNode(line, column), index + 1, path)
        if text[index] == "[":
            return self._scan_list(ListNode(line, column), index + 1, path)
        if text[index] == '"':
            word, end = scanstring(text, index + 1)
            return DocumentNode(line, column, word), end
        found = _ATOM.match(text, index)
        assert found is not None
        return DocumentNode(line, column, json.loads(found[0], parse_float=_parse_fraction)), found.end()

    def _scan_map(self, node: MapNode, index: int, path: str) -> tuple[DocumentNode, int]:
        text = self._source.text
        index = _skip_space(text, index)
        while text[index] != "}":
            index = _skip_space(text, index + 1 if text[index] == "," else index)
            key, after = scanstring(text, index + 1)
            place = self._source.get_position(index)
            below = f"{path}{format_step(key)}".removeprefix(".")
            child, index = self.scan_value(_skip_space(text, _skip_space(text, after) + 1), below)
            earlier = node.set_field(key, place, child)
            if earlier is not None:
                self.duplicates.append(DuplicateKey(below, key, earlier, place))
            index = _skip_space(text, index)
        return node, index + 1

    def _scan_list(self, node: ListNode, index: int, path: str) -> tuple[DocumentNode, int]:
        text = self._source.text
        index = _skip_space(text, index)
        while text[index] != "]":
            index = _skip_space(text, index + 1 if text[index] == "," else index)
            child, index = self.scan_value(index, f"{path}[{len(node.items)}]")
            node.append(child)
            index = _skip_space(text, index)
        return node, index + 1
