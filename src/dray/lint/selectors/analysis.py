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

from dray.api.devices.device_cel import environment
from dray.cel.checking.checker import Checked, check
from dray.cel.syntax.ast import Call, Fold, FoldKind, Ident, Literal, Node, Select, children
from dray.cel.syntax.lexer import tokens
from dray.cel.syntax.parser import parse
from dray.cel.types import QUANTITY, SEMVER, Kind, Type

ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"
KINDS: Final = (ATTRIBUTES, CAPACITY)
LIST: Final = "list"

Need = tuple[str, str, str]
"""Kind, domain and name; an empty name stands for the whole domain, an empty domain for all of the kind."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One attribute or capacity as the expression mentions it.

    `offset` is what the engine points at when it is missing, `at` where its name is written. A *tested* one
    is only asked for its presence; an *optional* one may be missing.
    """

    kind: str
    domain: str
    name: str
    offset: int
    at: int
    tested: bool = False
    optional: bool = False

    @property
    def need(self) -> Need:
        return self.kind, self.domain, self.name


@dataclass(frozen=True, slots=True)
class TypedUse:
    """A reference where only values of some types make sense; `offset` is that of the operator or call."""

    reference: Reference
    accepted: frozenset[str]
    offset: int
    function: str


@dataclass(frozen=True, slots=True)
class Term:
    """One of the conditions that `&&` joins, where it starts, and what it mentions."""

    text: str
    offset: int
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything lint wants to know about an expression."""

    references: tuple[Reference, ...]
    needs: frozenset[Need]
    fields: frozenset[str]
    """The fields of `device` it mentions."""
    terms: tuple[Term, ...]
    drivers: tuple[tuple[str, int], ...]
    """Drivers that a device must have to be selected, and where each is named."""
    uses: tuple[TypedUse, ...]


@lru_cache(maxsize=1024)
def read(expression: str) -> Reading:
    """Read an expression that compiles."""
    root = parse(expression)
    checked, _ = check(root, environment(sharing=True, lists=True).scope)
    walk = _Walk(expression, checked)
    walk.visit(root)
    references = tuple(walk.references.values())
    return Reading(
        references,
        frozenset(walk.needs),
        frozenset(walk.fields),
        tuple(_terms(expression, references)),
        tuple(_drivers(root)),
        tuple(_uses(root, checked, walk.references)),
    )


# --- what it looks at ---


class _Walk:
    """One walk over a tree; a path to an attribute is taken as a whole and not walked into."""

    def __init__(self, text: str, checked: Checked) -> None:
        self._text = text
        self._checked = checked
        self._seen: set[int] = set()
        self.references: dict[int, Reference] = {}
        self.needs: set[Need] = set()
        self.fields: set[str] = set()

    def visit(self, root: Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.id not in self._seen:
                self._seen.add(node.id)
                waiting += reversed(() if self._taken(node) else children(node))

    def _taken(self, node: Node) -> bool:
        if isinstance(node, Ident):
            if node.name == "device":  # the whole of it
                self.needs |= {(kind, "", "") for kind in KINDS}
            return True
        reference = self._reference(node)
        if reference is not None:
            self.references[node.id] = reference
            self.needs.add(reference.need)
            self.fields.add(reference.kind)
            return True
        need = _whole(node)
        if need is not None:
            self.needs.add(need)
            self.fields.add(need[0])
            return True
        if isinstance(node, Select) and _is_device(node.operand) and node.field not in KINDS:
            self.fields.add(node.field)
            return True
        return False

    def _reference(self, node: Node) -> Reference | None:
        match node:
            case Select(operand=operand, field=name, test=tested, optional=optional):
                domain, at = _domain(operand), self._name_behind(operand, node.offset, name)
            case Call(function="_[_]" | "_[?_]", args=(operand, Literal(value=str(name)) as key)):
                domain, tested, optional, at = _domain(operand), False, node.function == "_[?_]", key.offset
            case Call(function="@in", args=(Literal(value=str(name)) as key, container)):
                domain, tested, optional, at = _domain(container), True, False, key.offset
            case _:
                return None
        if domain is None:
            return None
        return Reference(*domain, name, node.offset, max(at, 0), tested, optional)

    def _name_behind(self, operand: Node, offset: int, name: str) -> int:
        """Where the name of a field is written: behind the path it is a field of."""
        if isinstance(operand, Call) and operand.args and isinstance(operand.args[-1], Literal):
            offset = max(offset, operand.args[-1].offset + 1 + len(str(operand.args[-1].value)))
        return self._text.find(name, offset)


def _is_device(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "device"


def _kind(node: Node) -> str | None:
    """`device.attributes` or `device.capacity`."""
    if isinstance(node, Select) and node.field in KINDS and _is_device(node.operand) and not node.test:
        return node.field
    return None


def _domain(node: Node) -> tuple[str, str] | None:
    """`device.attributes["domain"]`, in any spelling."""
    match node:
        case Call(function="_[_]" | "_[?_]", args=(operand, Literal(value=str(name)))):
            kind = _kind(operand)
        case Select(operand=operand, field=name, test=False):
            kind = _kind(operand)
        case _:
            return None
    return None if kind is None else (kind, name)


def _whole(node: Node) -> Need | None:
    """A domain or kind that is looked at as a whole."""
    domain = _domain(node)
    if domain is not None:
        return *domain, ""
    kind = _kind(node)
    if kind is not None:
        return kind, "", ""
    match node:
        case Call(function="@in", args=(Literal(value=str(name)), container)):
            kind = _kind(container)
            return None if kind is None else (kind, name, "")
        case Select(operand=operand, field=name, test=True):
            kind = _kind(operand)
            return None if kind is None else (kind, name, "")
        case _:
            return None


# --- conditions ---

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def _terms(expression: str, references: tuple[Reference, ...]) -> Iterator[Term]:
    """The conditions that `&&` joins at the top; the expression alone when something else does."""
    read, _ = tokens(expression)
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
        mentioned = tuple(reference for reference in references if start <= reference.at < end)
        yield Term(text.strip(), start + len(text) - len(text.lstrip()), mentioned)
        start = end + 2


def _drivers(root: Node) -> Iterator[tuple[str, int]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        match node:
            case Call(function="_&&_", args=args):
                waiting += reversed(args)
            case Call(function="_==_", args=(left, right)):
                yield from _driver(left, right)
                yield from _driver(right, left)
            case _:
                pass


def _driver(field: Node, named: Node) -> Iterator[tuple[str, int]]:
    reads = isinstance(field, Select) and field.field == "driver" and _is_device(field.operand)
    if reads and isinstance(named, Literal) and isinstance(named.value, str):
        yield named.value, named.offset


# --- types ---

_NAMES: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.INT: "int",
        Kind.UINT: "int",
        Kind.DOUBLE: "int",  # numbers are compared by value, whatever their type
        Kind.STRING: "string",
        Kind.BOOL: "bool",
        Kind.LIST: LIST,
    }
)
_STRUCTS: Mapping[Type, str] = MappingProxyType({SEMVER: "version", QUANTITY: "quantity"})
_LOOSE: Final = frozenset({Kind.DYN, Kind.ANY, Kind.ERROR, Kind.VARIABLE})
_BOOL: Final = frozenset({"bool"})


def _names(types: Iterator[Type]) -> frozenset[str] | None:
    """The types of attributes that fit; nothing when any may."""
    found = set()
    for one in types:
        if one.kind in _LOOSE:
            return None
        found.add(_STRUCTS.get(one) or _NAMES.get(one.kind, str(one)))
    return frozenset(found)


def _uses(root: Node, checked: Checked, known: Mapping[int, Reference]) -> Iterator[TypedUse]:
    """Every place where a reference stands and only some types make sense."""
    if root.id in known and not known[root.id].tested:
        yield TypedUse(known[root.id], _BOOL, root.offset, "")
    waiting, seen = [root], {root.id}
    while waiting:
        node = waiting.pop()
        fresh = [child for child in children(node) if child.id not in seen]
        waiting += reversed(fresh)
        seen |= {child.id for child in fresh}
        if isinstance(node, Call):
            yield from _arguments(node, checked, known)
        elif isinstance(node, Fold) and node.kind is not FoldKind.BIND and node.source.id in known:
            yield TypedUse(known[node.source.id], frozenset({LIST}), node.offset, "")


def _arguments(node: Call, checked: Checked, known: Mapping[int, Reference]) -> Iterator[TypedUse]:
    qualified = node.id in checked.qualified
    given = node.args if node.target is None or qualified else (node.target, *node.args)
    for place, argument in enumerate(given):
        reference = known.get(argument.id)
        if reference is None or reference.kind != ATTRIBUTES or reference.tested or reference.optional:
            continue
        accepted = _accepted(node, place, given, checked)
        if accepted is not None:
            yield TypedUse(reference, accepted, node.offset, node.function)


def _accepted(node: Call, place: int, given: tuple[Node, ...], checked: Checked) -> frozenset[str] | None:
    if node.function in ("_==_", "_!=_"):
        return _names(iter([checked.types[given[1 - place].id]]))
    if node.function == "@in" and place == 0:
        container = checked.types[given[1].id]
        return _names(iter(container.params[:1])) if container.params else None
    overloads = checked.overloads.get(node.id, ())
    return _names(overload.params[place] for overload in overloads if place < len(overload.params))
