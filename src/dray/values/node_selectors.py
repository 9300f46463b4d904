"""Node selectors: the nodes from which a device can be reached, or to which a claim is bound.

The structs are those of API objects, with the semantics of Kubernetes: a selector matches when one of its
terms does, a term when all its requirements do. A term without requirements matches no node, and a selector
without terms matches none either. An invalid requirement (unknown operator, `Gt` with a value that is no
number) is never satisfied; `check_node_selector` explains why.

Merging is conjunction. Two selectors of one term become one selector of one term with the requirements of
both, in order, each kept once; the order of values within a requirement is irrelevant. Selectors of several
terms have no such form in general and are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.values.label_selectors import SelectorOperator, matches_operator, parse_int64
from dray.values.names import check_dns_subdomain, check_label_value, check_qualified_name

NODE_NAME_FIELD = "metadata.name"
"""The one field of a node that `matchFields` supports."""


class NodeSelectorError(ValueError):
    """A document that is no node selector; the message names the path."""


@dataclass(frozen=True, slots=True)
class NodeSelectorFault:
    """One broken rule: its type as in a Kubernetes `Status`, the path below the selector, the value, why."""

    kind: str
    path: str
    value: Any
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class UnmergeableSelectors:
    """Two selectors that cannot be merged into one term, and why."""

    reason: str


class _Struct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of the structs: camelCase on the wire, no unknown fields, absent fields have defaults."""


class NodeSelectorRequirement(_Struct, frozen=True):
    """One condition on one label of a node, or on its name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Struct, frozen=True):
    """Conditions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is no condition at all; such a term matches no node."""
        return not self.match_expressions and not self.match_fields

    def deduplicate(self) -> NodeSelectorTerm:
        """Return the same term with every requirement kept once; itself when nothing is repeated."""
        expressions, fields = (
            _merge_requirements(self.match_expressions, ()),
            _merge_requirements(self.match_fields, ()),
        )
        if len(expressions) == len(self.match_expressions) and len(fields) == len(self.match_fields):
            return self
        return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)

    def matches(self, node_name: str, node_labels: Mapping[str, str]) -> bool:
        """Whether a node satisfies every condition."""
        # Plain loops: this is called for every slice on every node.
        for item in self.match_expressions:
            if not matches_operator(item.operator, node_labels.get(item.key), item.values):
                return False
        for item in self.match_fields:
            if item.key != NODE_NAME_FIELD or item.operator not in _FIELD_OPERATORS:
                return False
            if not matches_operator(item.operator, node_name, item.values):
                return False
        return not self.is_empty


class NodeSelector(_Struct, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    @staticmethod
    def from_document(document: object) -> NodeSelector:
        """Convert a plain document with the field names of Kubernetes; raises `NodeSelectorError`."""
        try:
            return msgspec.convert(document, NodeSelector)
        except msgspec.ValidationError as error:
            raise NodeSelectorError(f"node selector: {error}") from None

    def to_document(self) -> dict[str, Any]:
        """Convert to a plain document with the field names of Kubernetes."""
        # Through JSON: `to_builtins` keeps tuples, and a plain document has lists.
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def matches(self, node_name: str, node_labels: Mapping[str, str]) -> bool:
        """Whether a node satisfies one of the terms."""
        return any(term.matches(node_name, node_labels) for term in self.node_selector_terms)

    @property
    def only_node(self) -> str:
        """The name of the one node that can match; empty when the selector does not name one."""
        if len(self.node_selector_terms) != 1:
            return ""
        for item in self.node_selector_terms[0].match_fields:
            if item.key == NODE_NAME_FIELD and item.operator == SelectorOperator.IN and len(item.values) == 1:
                return item.values[0]
        return ""

    def deduplicate(self) -> NodeSelector:
        """Return the same selector with every requirement of a term kept once; itself when nothing is
        repeated.
        """
        terms = tuple([term.deduplicate() for term in self.node_selector_terms])
        if all(new is old for new, old in zip(terms, self.node_selector_terms, strict=True)):
            return self
        return NodeSelector(node_selector_terms=terms)

    def merge(self, other: NodeSelector) -> NodeSelector | UnmergeableSelectors:
        """Return one selector that matches exactly the nodes that both match."""
        most = max(len(self.node_selector_terms), len(other.node_selector_terms))
        if most > 1:
            return UnmergeableSelectors(
                f"a node selector with {most} terms cannot be merged; expected one term"
            )
        terms = self.node_selector_terms + other.node_selector_terms
        if len(terms) < 2 or any(term.is_empty for term in terms):
            return NO_NODES
        first, second = terms
        return NodeSelector(
            node_selector_terms=(
                NodeSelectorTerm(
                    match_expressions=_merge_requirements(first.match_expressions, second.match_expressions),
                    match_fields=_merge_requirements(first.match_fields, second.match_fields),
                ),
            )
        )


NO_NODES = NodeSelector()
"""Matches no node."""


def build_node_name_selector(name: str) -> NodeSelector:
    """Build the selector that matches only the node with this name."""
    requirement = NodeSelectorRequirement(
        key=NODE_NAME_FIELD, operator=SelectorOperator.IN.value, values=(name,)
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))


def _merge_requirements(
    first: tuple[NodeSelectorRequirement, ...], second: tuple[NodeSelectorRequirement, ...]
) -> tuple[NodeSelectorRequirement, ...]:
    kept: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    for item in first + second:
        kept.setdefault((item.key, item.operator, frozenset(item.values)), item)
    return tuple(kept.values())


# --- rules ---

_FIELD_OPERATORS = frozenset({SelectorOperator.IN, SelectorOperator.NOT_IN})
_REQUIRED, _INVALID, _FORBIDDEN = "FieldValueRequired", "FieldValueInvalid", "FieldValueForbidden"


@dataclass(frozen=True, slots=True)
class _ValueCount:
    """How many values an operator takes, and the error for any other number."""

    counts: range
    kind: str
    text: str


_SOME = _ValueCount(range(1, sys.maxsize), _REQUIRED, "must be specified when `operator` is 'In' or 'NotIn'")
_NONE = _ValueCount(
    range(1), _FORBIDDEN, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
)
_ONE = _ValueCount(range(1, 2), _REQUIRED, "must be specified single value when `operator` is 'Lt' or 'Gt'")
_VALUE_COUNTS: dict[str, _ValueCount] = {
    SelectorOperator.IN: _SOME,
    SelectorOperator.NOT_IN: _SOME,
    SelectorOperator.EXISTS: _NONE,
    SelectorOperator.DOES_NOT_EXIST: _NONE,
    SelectorOperator.GT: _ONE,
    SelectorOperator.LT: _ONE,
}


def check_node_selector(selector: NodeSelector) -> tuple[NodeSelectorFault, ...]:
    """Return all faults of a selector, in the order and words of Kubernetes.

    One rule is dray's own: `Gt` and `Lt` need a whole number. Kubernetes stores any value and fails at each
    match.
    """
    return tuple(_check_terms(selector))


def _check_terms(selector: NodeSelector) -> Iterator[NodeSelectorFault]:
    terms = selector.node_selector_terms
    if not terms:
        yield NodeSelectorFault(
            _REQUIRED, "nodeSelectorTerms", "", "must have at least one node selector term"
        )
    for index, term in enumerate(terms):
        place = f"nodeSelectorTerms[{index}]"
        for position, item in enumerate(term.match_expressions):
            yield from _check_expression(item, f"{place}.matchExpressions[{position}]")
        for position, item in enumerate(term.match_fields):
            yield from _check_field(item, f"{place}.matchFields[{position}]")


def _check_expression(item: NodeSelectorRequirement, place: str) -> Iterator[NodeSelectorFault]:
    yield from _check_value_count(item, place)
    for fault in check_qualified_name(item.key):
        yield NodeSelectorFault(_INVALID, f"{place}.key", item.key, fault.text)
    for index, value in enumerate(item.values):
        where = f"{place}.values[{index}]"
        for fault in check_label_value(value):
            yield NodeSelectorFault(_INVALID, where, value, fault.text)
        if item.operator in {SelectorOperator.GT, SelectorOperator.LT} and parse_int64(value) is None:
            yield NodeSelectorFault(
                _INVALID, where, value, "must be an integer when `operator` is 'Lt' or 'Gt'"
            )


def _check_value_count(item: NodeSelectorRequirement, place: str) -> Iterator[NodeSelectorFault]:
    rule = _VALUE_COUNTS.get(item.operator)
    if rule is None:
        yield _build_operator_fault(item, place)
    elif len(item.values) not in rule.counts:
        yield NodeSelectorFault(rule.kind, f"{place}.values", "", rule.text)


def _check_field(item: NodeSelectorRequirement, place: str) -> Iterator[NodeSelectorFault]:
    if item.operator not in _FIELD_OPERATORS:
        yield _build_operator_fault(item, place)
    elif len(item.values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield NodeSelectorFault(_REQUIRED, f"{place}.values", "", text)
    if item.key != NODE_NAME_FIELD:
        yield NodeSelectorFault(_INVALID, f"{place}.key", item.key, "not a valid field selector key")
        return
    for index, value in enumerate(item.values):
        for fault in check_dns_subdomain(value):
            yield NodeSelectorFault(_INVALID, f"{place}.values[{index}]", value, fault.text)


def _build_operator_fault(item: NodeSelectorRequirement, place: str) -> NodeSelectorFault:
    return NodeSelectorFault(_INVALID, f"{place}.operator", item.operator, "not a valid selector operator")
