"""Reading a selector: what of a device it looks at, which conditions it joins, which types it takes.

Theory of operation: a selector is parsed and checked once more, this time for its tree. A *reference* is the
path to one attribute or capacity whose domain and name are written out. Everything a selector looks at is a
*need*: a reference, a whole domain (`device.attributes["d"].exists(...)`), or a whole kind when the domain is
computed. Two devices that are alike in all needs of a selector cannot be told apart by it.

Rules for this file: nothing is evaluated, and no device is known. Only expressions that compile come in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dray.api.devices.device_cel import build_environment
from dray.cel.checking.checker import CheckResult, check
from dray.cel.syntax.ast import (
    Comprehension,
    ComprehensionKind,
    FunctionCall,
    Ident,
    Literal,
    Node,
    Select,
    get_children,
)
from dray.cel.syntax.lexer import tokenize
from dray.cel.syntax.parser import parse
from dray.cel.types import QUANTITY, SEMVER, Type, TypeKind

ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"
KINDS: Final = (ATTRIBUTES, CAPACITY)
LIST: Final = "list"

FieldKey = tuple[str, str, str]
"""Kind, domain and name; an empty name stands for the whole domain, an empty domain for all of the kind."""


@dataclass(frozen=True, slots=True)
class FieldReference:
    """One attribute or capacity as the expression mentions it.

    `offset` is what the engine points at when it is missing, `name_offset` where its name is written. A
    *tested* one is only asked for its presence; an *optional* one may be missing.
    """

    kind: str
    domain: str
    name: str
    offset: int
    name_offset: int
    is_presence_test: bool = False
    is_optional: bool = False

    @property
    def key(self) -> FieldKey:
        return self.kind, self.domain, self.name


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
class SelectorAnalysis:
    """Everything lint wants to know about an expression."""

    references: tuple[FieldReference, ...]
    field_keys: frozenset[FieldKey]
    fields: frozenset[str]
    """The fields of `device` it mentions."""
    conditions: tuple[SelectorCondition, ...]
    required_drivers: tuple[tuple[str, int], ...]
    """Drivers that a device must have to be selected, and where each is named."""
    typed_uses: tuple[TypedUse, ...]


@lru_cache(maxsize=1024)
def analyze_selector(expression: str) -> SelectorAnalysis:
    """Read an expression that compiles."""
    root = parse(expression)
    checked, _ = check(root, build_environment(sharing=True, lists=True).scope)
    walk = _ReferenceCollector(expression, checked)
    walk.visit(root)
    references = tuple(walk.references.values())
    return SelectorAnalysis(
        references,
        frozenset(walk.field_keys),
        frozenset(walk.fields),
        tuple(_split_conditions(expression, references)),
        tuple(_find_required_drivers(root)),
        tuple(_find_typed_uses(root, checked, walk.references)),
    )


# --- what it looks at ---


class _ReferenceCollector:
    """One walk over a tree; a path to an attribute is taken as a whole and not walked into."""

    def __init__(self, text: str, checked: CheckResult) -> None:
        self._text = text
        self._checked = checked
        self._seen: set[int] = set()
        self.references: dict[int, FieldReference] = {}
        self.field_keys: set[FieldKey] = set()
        self.fields: set[str] = set()

    def visit(self, root: Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.id not in self._seen:
                self._seen.add(node.id)
                waiting += reversed(() if self._collect_node(node) else get_children(node))

    def _collect_node(self, node: Node) -> bool:
        if isinstance(node, Ident):
            if node.name == "device":  # the whole of it
                self.field_keys |= {(kind, "", "") for kind in KINDS}
            return True
        reference = self._find_reference(node)
        if reference is not None:
            self.references[node.id] = reference
            self.field_keys.add(reference.key)
            self.fields.add(reference.kind)
            return True
        need = _get_whole_key(node)
        if need is not None:
            self.field_keys.add(need)
            self.fields.add(need[0])
            return True
        if isinstance(node, Select) and _is_device(node.operand) and node.field not in KINDS:
            self.fields.add(node.field)
            return True
        return False

    def _find_reference(self, node: Node) -> FieldReference | None:
        match node:
            case Select(operand=operand, field=name, test=tested, optional=optional):
                domain, at = _get_domain(operand), self._find_name_offset(operand, node.offset, name)
            case FunctionCall(function="_[_]" | "_[?_]", args=(operand, Literal(value=str(name)) as key)):
                domain, tested, optional, at = (
                    _get_domain(operand),
                    False,
                    node.function == "_[?_]",
                    key.offset,
                )
            case FunctionCall(function="@in", args=(Literal(value=str(name)) as key, container)):
                domain, tested, optional, at = _get_domain(container), True, False, key.offset
            case _:
                return None
        if domain is None:
            return None
        return FieldReference(*domain, name, node.offset, max(at, 0), tested, optional)

    def _find_name_offset(self, operand: Node, offset: int, name: str) -> int:
        """Where the name of a field is written: behind the path it is a field of."""
        if isinstance(operand, FunctionCall) and operand.args and isinstance(operand.args[-1], Literal):
            offset = max(offset, operand.args[-1].offset + 1 + len(str(operand.args[-1].value)))
        return self._text.find(name, offset)


def _is_device(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "device"


def _get_kind(node: Node) -> str | None:
    """`device.attributes` or `device.capacity`."""
    if isinstance(node, Select) and node.field in KINDS and _is_device(node.operand) and not node.test:
        return node.field
    return None


def _get_domain(node: Node) -> tuple[str, str] | None:
    """`device.attributes["domain"]`, in any spelling."""
    match node:
        case FunctionCall(function="_[_]" | "_[?_]", args=(operand, Literal(value=str(name)))):
            kind = _get_kind(operand)
        case Select(operand=operand, field=name, test=False):
            kind = _get_kind(operand)
        case _:
            return None
    return None if kind is None else (kind, name)


def _get_whole_key(node: Node) -> FieldKey | None:
    """A domain or kind that is looked at as a whole."""
    domain = _get_domain(node)
    if domain is not None:
        return *domain, ""
    kind = _get_kind(node)
    if kind is not None:
        return kind, "", ""
    match node:
        case FunctionCall(function="@in", args=(Literal(value=str(name)), container)):
            kind = _get_kind(container)
            return None if kind is None else (kind, name, "")
        case Select(operand=operand, field=name, test=True):
            kind = _get_kind(operand)
            return None if kind is None else (kind, name, "")
        case _:
            return None


# --- conditions ---

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def _split_conditions(expression: str, references: tuple[FieldReference, ...]) -> Iterator[SelectorCondition]:
    """The conditions that `&&` joins at the top; the expression alone when something else does."""
    read, _ = tokenize(expression)
    depth = 0
    cuts: list[int] = []
    for token in read:
        depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
        if depth == 0 and token.kind in ("||", "?"):
            cuts = []
            break
        if depth == 0 and token.kind == "&&":
            cuts.append(token.offset)
    start = 0
    for end in (*cuts, len(expression)):
        text = expression[start:end]
        mentioned = tuple(reference for reference in references if start <= reference.name_offset < end)
        yield SelectorCondition(text.strip(), start + len(text) - len(text.lstrip()), mentioned)
        start = end + 2


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
    reads = isinstance(field, Select) and field.field == "driver" and _is_device(field.operand)
    if reads and isinstance(named, Literal) and isinstance(named.value, str):
        yield named.value, named.offset


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
    """The types of attributes that fit; nothing when any may."""
    found = set()
    for one in types:
        if one.kind in _UNKNOWN_KINDS:
            return None
        found.add(_STRUCT_TYPES.get(one) or _ATTRIBUTE_TYPES.get(one.kind, str(one)))
    return frozenset(found)


def _find_typed_uses(
    root: Node, checked: CheckResult, known: Mapping[int, FieldReference]
) -> Iterator[TypedUse]:
    """Every place where a reference stands and only some types make sense."""
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
    given = node.args if node.target is None or qualified else (node.target, *node.args)
    for place, argument in enumerate(given):
        reference = known.get(argument.id)
        if (
            reference is None
            or reference.kind != ATTRIBUTES
            or reference.is_presence_test
            or reference.is_optional
        ):
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
