"""Writer of documents: YAML in block style, and JSON.

Rules for this file: what is written reads back as the same values, also by tools that follow the rules of
`scalars`; text that could be taken for something else is quoted. The order of keys is kept.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dray.manifests.scalars import NON_FINITE, resolve_scalar

try:
    from yaml.cyaml import CDumper as _Dumper
except ImportError:  # PyYAML without libyaml: slower, same text
    from yaml import Dumper as _Dumper  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_JSON = msgspec.json.Encoder(decimal_format="number")
_WIDTH = 1_000_000
"""Lines are never folded: a folded expression or command is hard to read and easy to break."""

_AMBIGUOUS = re.compile(r"\d{4}-\d|[-+]?\d[\d_]*:[0-5]?\d")
"""Dates and base-60 numbers: text to dray and Kubernetes, something else to other readers of YAML 1.1."""


class _YamlDumper(_Dumper):
    """Decides what needs quotes by `scalars`, not by the resolver of PyYAML."""

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode and implicit[0]:
            special = value == "<<" or value in NON_FINITE or _AMBIGUOUS.match(value)
            return _TAG + ("merge" if special else _find_tag(resolve_scalar(value)))
        return _TAG + {ScalarNode: "str", SequenceNode: "seq", MappingNode: "map"}[kind]


def to_yaml(documents: Iterable[Any]) -> str:
    """Render documents as one YAML text, separated by `---`."""
    return "---\n".join(to_yaml_block(document) for document in documents)


def to_yaml_block(value: Any) -> str:
    """Render one value as YAML, ending in a line break."""
    out = io.StringIO()
    dumper = _YamlDumper(out, width=_WIDTH, allow_unicode=True, sort_keys=False)
    dumper.open()
    dumper.serialize(_to_yaml_node(value))
    dumper.close()
    text = out.getvalue()
    return text.removesuffix("...\n") if text.endswith("\n...\n") else text


def to_json(documents: Iterable[Any]) -> str:
    """Render documents as indented JSON, one after the other."""
    return "".join(
        msgspec.json.format(_JSON.encode(document), indent=2).decode() + "\n" for document in documents
    )


def _to_yaml_node(value: Any) -> Node:
    """Convert a plain value to a PyYAML node; lists are always in block style, text of several lines too."""
    match value:
        case dict():
            pairs = [(_to_yaml_node(str(key)), _to_yaml_node(item)) for key, item in value.items()]
            return MappingNode(_TAG + "map", pairs, flow_style=not pairs)
        case list() | tuple():
            return SequenceNode(_TAG + "seq", [_to_yaml_node(item) for item in value], flow_style=not value)
        case str():
            return ScalarNode(_TAG + "str", value, style="|" if "\n" in value.strip() else None)
        case _:
            return ScalarNode(_TAG + _find_tag(value), _render_scalar(value))


def _find_tag(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case Decimal() | float():
            return "float"
        case None:
            return "null"
        case _:
            return "str"


def _render_scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return str(value)
