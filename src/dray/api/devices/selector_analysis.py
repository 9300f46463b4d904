"""Selector analysis: what a selector reads of a device, which conditions it joins, which types it expects.

Theory of operation: the expression is parsed and checked once more, this time for its syntax tree. `lint`
compares the analysis with the published devices before anything runs; `explain` uses it to say which
condition of a selector a device fails, and how close its value comes. Both read selectors here and nowhere
else. An expression that does not parse is one condition that reads nothing; what does not type-check has no
typed uses.

Rules for this file: nothing is evaluated, and no device is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dray.api.devices.device_cel import build_environment
from dray.api.devices.selector_references import (
    ATTRIBUTES,
    KINDS,
    FieldKey,
    FieldReference,
    ReferenceCollector,
    is_device,
)
from dray.cel.checking.checker import CheckResult, check
from dray.cel.checking.unification import ComplexityError
from dray.cel.faults import RejectedError
from dray.cel.syntax.ast import (
    Comprehension,
    ComprehensionKind,
    FunctionCall,
    Literal,
    Node,
    Select,
    get_children,
)
from dray.cel.syntax.lexer import Token, tokenize
from dray.cel.syntax.parser import parse
from dray.cel.types import QUANTITY, SEMVER, Type, TypeKind

LIST: Final = "list"


@dataclass(frozen=True, slots=True)
class TypedUse:
    """A reference where only values of some types make sense; `offset` is that of the operator or call."""

    reference: FieldReference
    accepted_types: frozenset[str]
    offset: int
    function: str


@dataclass(frozen=True, slots=True)
class SelectorCondition:
    """One of the conditions that `&&` joins, where it starts, and what it mentions."""

    text: str
    offset: int
    references: tuple[FieldReference, ...]


@dataclass(frozen=True, slots=True)
class QuantityLiteral:
    """The text of `quantity("...")`, and the span of the literal in the expression."""

    text: str
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SelectorAnalysis:
    """What is known about an expression without evaluating it."""

    text: str
    references: tuple[FieldReference, ...] = ()
    field_keys: frozenset[FieldKey] = frozenset()
    fields: frozenset[str] = frozenset()
    """The fields of `device` it mentions."""
    conditions: tuple[SelectorCondition, ...] = ()
    required_drivers: tuple[tuple[str, int], ...] = ()
    """Drivers that a device must have to be selected, and where each is named."""
    typed_uses: tuple[TypedUse, ...] = ()
    quantities: tuple[QuantityLiteral, ...] = ()
    direction: int = 0
    """1 when a larger value of the reference it compares meets it, -1 for a smaller one, 0 when unknown."""

    @property
    def only_field(self) -> FieldKey | None:
        """The attribute or capacity, when the expression reads exactly one and nothing else of the device."""
        if len(self.field_keys) != 1 or not self.fields.issubset(KINDS):
            return None
        (field_key,) = self.field_keys
        return field_key if field_key[2] else None

    @property
    def short_text(self) -> str:
        """The expression with names in place of paths: `size == "large"`."""
        text = self.text
        spans = {reference.span: reference.name for reference in self.references if reference.span}
        for start, end in sorted(spans, reverse=True):
            text = f"{text[:start]}{spans[start, end]}{text[end:]}"
        return text


@lru_cache(maxsize=1024)
def analyze_selector(expression: str) -> SelectorAnalysis:
    """Analyze the expression of a selector."""
    tokens, _ = tokenize(expression)
    try:
        root = parse(expression)
        checked, issues = check(root, build_environment(sharing=True, lists=True).scope)
    except (RejectedError, ComplexityError):
        return SelectorAnalysis(expression, conditions=(SelectorCondition(expression, 0, ()),))
    collector = ReferenceCollector(expression, tokens)
    collector.visit(root)
    references = tuple(collector.references.values())
    return SelectorAnalysis(
        expression,
        references,
        frozenset(collector.field_keys),
        frozenset(collector.fields),
        tuple(_split_conditions(expression, tokens, references)),
        tuple(_find_required_drivers(root)),
        () if issues else tuple(_find_typed_uses(root, checked, collector.references)),
        tuple(_find_quantities(root, tokens)),
        _find_direction(root, collector.references),
    )


def _find_quantities(root: Node, tokens: list[Token]) -> Iterator[QuantityLiteral]:
    ends = {token.offset: token.offset + len(token.text) for token in tokens}
    waiting, seen = [root], {root.id}
    while waiting:
        node = waiting.pop()
        match node:
            case FunctionCall(function="quantity", args=(Literal(value=str(text)) as literal,)):
                yield QuantityLiteral(text, (literal.offset, ends[literal.offset]))
            case _:
                fresh = [child for child in get_children(node) if child.id not in seen]
                waiting += reversed(fresh)
                seen |= {child.id for child in fresh}


# --- conditions ---

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def _split_conditions(
    expression: str, tokens: list[Token], references: tuple[FieldReference, ...]
) -> Iterator[SelectorCondition]:
    """The conditions that `&&` joins at the top; the expression alone when another operator does."""
    depth = 0
    groups: list[list[Token]] = [[]]
    for token in tokens[:-1]:
        depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
        if depth == 0 and token.kind in ("||", "?"):
            groups = [tokens[:-1]]
            break
        if depth == 0 and token.kind == "&&":
            groups.append([])
        else:
            groups[-1].append(token)
    for group in groups:
        start, end = group[0].offset, group[-1].offset + len(group[-1].text)
        mentioned = tuple(reference for reference in references if start <= reference.name_offset < end)
        yield SelectorCondition(expression[start:end], start, mentioned)


def _find_required_drivers(root: Node) -> Iterator[tuple[str, int]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        match node:
            case FunctionCall(function="_&&_", args=args):
                waiting += reversed(args)
            case FunctionCall(function="_==_", args=(left, right)):
                yield from _match_driver(left, right)
                yield from _match_driver(right, left)
            case _:
                pass


def _match_driver(field: Node, named: Node) -> Iterator[tuple[str, int]]:
    reads = isinstance(field, Select) and field.field == "driver" and is_device(field.operand)
    if reads and isinstance(named, Literal) and isinstance(named.value, str):
        yield named.value, named.offset


_COMPARISONS: Mapping[str, int] = MappingProxyType(
    {"_>_": 1, "_>=_": 1, "isGreaterThan": 1, "_<_": -1, "_<=_": -1, "isLessThan": -1}
)


def _find_direction(root: Node, known: Mapping[int, FieldReference]) -> int:
    """Whether more (1) or less (-1) of the value of a reference makes a comparison true."""
    if not isinstance(root, FunctionCall):
        return 0
    if root.function == "!_":
        return -_find_direction(root.args[0], known)
    operands = _get_operands(root)
    if root.function not in _COMPARISONS or len(operands) != 2:
        return 0
    left, right = (_find_sign(operand, known) for operand in operands)
    return _COMPARISONS[root.function] * (left - right)


def _find_sign(operand: Node, known: Mapping[int, FieldReference]) -> int:
    """1 when an operand grows with a reference, -1 when it shrinks, else 0."""
    if isinstance(operand, FunctionCall) and operand.function == "compareTo":
        left, *others = _get_operands(operand)
        return (left.id in known) - any(other.id in known for other in others)
    return int(operand.id in known)


def _get_operands(call: FunctionCall) -> tuple[Node, ...]:
    return call.args if call.target is None else (call.target, *call.args)


# --- types ---

_ATTRIBUTE_TYPES: Mapping[TypeKind, str] = MappingProxyType(
    {
        TypeKind.INT: "int",
        TypeKind.UINT: "int",
        TypeKind.DOUBLE: "int",  # numbers are compared by value, whatever their type
        TypeKind.STRING: "string",
        TypeKind.BOOL: "bool",
        TypeKind.LIST: LIST,
    }
)
_STRUCT_TYPES: Mapping[Type, str] = MappingProxyType({SEMVER: "version", QUANTITY: "quantity"})
_UNKNOWN_KINDS: Final = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR, TypeKind.VARIABLE})
_BOOL: Final = frozenset({"bool"})


def _get_attribute_types(types: Iterator[Type]) -> frozenset[str] | None:
    """The types of attributes that fit; None when any may."""
    found = set()
    for one in types:
        if one.kind in _UNKNOWN_KINDS:
            return None
        found.add(_STRUCT_TYPES.get(one) or _ATTRIBUTE_TYPES.get(one.kind, str(one)))
    return frozenset(found)


def _find_typed_uses(
    root: Node, checked: CheckResult, known: Mapping[int, FieldReference]
) -> Iterator[TypedUse]:
    """Every use of a reference where only some types make sense."""
    if root.id in known and not known[root.id].is_presence_test:
        yield TypedUse(known[root.id], _BOOL, root.offset, "")
    waiting, seen = [root], {root.id}
    while waiting:
        node = waiting.pop()
        fresh = [child for child in get_children(node) if child.id not in seen]
        waiting += reversed(fresh)
        seen |= {child.id for child in fresh}
        if isinstance(node, FunctionCall):
            yield from _find_argument_uses(node, checked, known)
        elif (
            isinstance(node, Comprehension)
            and node.kind is not ComprehensionKind.BIND
            and node.source.id in known
        ):
            yield TypedUse(known[node.source.id], frozenset({LIST}), node.offset, "")


def _find_argument_uses(
    node: FunctionCall, checked: CheckResult, known: Mapping[int, FieldReference]
) -> Iterator[TypedUse]:
    qualified = node.id in checked.qualified
    given = node.args if qualified else _get_operands(node)
    for place, argument in enumerate(given):
        reference = known.get(argument.id)
        if reference is None or reference.kind != ATTRIBUTES or not reference.is_required:
            continue
        accepted = _find_accepted_types(node, place, given, checked)
        if accepted is not None:
            yield TypedUse(reference, accepted, node.offset, node.function)


def _find_accepted_types(
    node: FunctionCall, place: int, given: tuple[Node, ...], checked: CheckResult
) -> frozenset[str] | None:
    if node.function in ("_==_", "_!=_"):
        return _get_attribute_types(iter([checked.types[given[1 - place].id]]))
    if node.function == "@in" and place == 0:
        container = checked.types[given[1].id]
        return _get_attribute_types(iter(container.params[:1])) if container.params else None
    overloads = checked.overloads.get(node.id, ())
    return _get_attribute_types(
        overload.params[place] for overload in overloads if place < len(overload.params)
    )
