"""References of a selector: the attributes and capacities of a device that an expression reads.

Theory of operation: one traversal of the syntax tree. A *reference* is the path to one attribute or capacity
whose domain and name are literals. Everything a selector reads is a *field key*: a reference, a whole domain
(`device.attributes["d"].exists(...)`), or a whole kind when the domain is computed. A selector cannot
distinguish two devices that are equal in all its field keys.

Rules for this file: nothing is evaluated, and no device is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.cel.syntax.ast import FunctionCall, Ident, Literal, Node, Select, get_children
from dray.cel.syntax.lexer import Token

ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"
KINDS: Final = (ATTRIBUTES, CAPACITY)

FieldKey = tuple[str, str, str]
"""Kind, domain and name; an empty name stands for the whole domain, an empty domain for all of the kind."""


@dataclass(frozen=True, slots=True)
class FieldReference:
    """One attribute or capacity as the expression mentions it.

    `offset` is where the engine reports that it is missing, `name_offset` where its name is written, `span`
    where the whole path starts and ends; an `in` test has no path. A *presence test* only checks that it
    exists; an *optional* reference may be missing.
    """

    kind: str
    domain: str
    name: str
    offset: int
    name_offset: int
    is_presence_test: bool = False
    is_optional: bool = False
    span: tuple[int, int] | None = None

    @property
    def key(self) -> FieldKey:
        return self.kind, self.domain, self.name

    @property
    def is_required(self) -> bool:
        """Whether the expression fails on a device that lacks it."""
        return not self.is_presence_test and not self.is_optional


class ReferenceCollector:
    """One traversal of a tree; the path to an attribute is collected as a whole."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = {token.offset: i for i, token in enumerate(tokens)}
        self._ends = [token.offset + len(token.text) for token in tokens]
        self._seen: set[int] = set()
        self.references: dict[int, FieldReference] = {}
        """By the id of the node."""
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
        """Collect what a node reads; whether its children need no visit."""
        if isinstance(node, Ident):
            if node.name == "device":  # the whole device
                self.field_keys |= {(kind, "", "") for kind in KINDS}
            return True
        reference = self._find_reference(node)
        if reference is not None:
            self.references[node.id] = reference
            self.field_keys.add(reference.key)
            self.fields.add(reference.kind)
            return True
        field_key = _get_whole_key(node)
        if field_key is not None:
            self.field_keys.add(field_key)
            self.fields.add(field_key[0])
            return True
        if isinstance(node, Select) and is_device(node.operand) and node.field not in KINDS:
            self.fields.add(node.field)
            return True
        return False

    def _find_reference(self, node: Node) -> FieldReference | None:
        match node:
            case Select(operand=operand, field=name, test=tested, optional=optional):
                domain, at = _get_domain(operand), self._find_name_offset(operand, node.offset, name)
                end = at + len(name)
            case FunctionCall(function="_[_]" | "_[?_]", args=(operand, Literal(value=str(name)) as key)):
                domain, at, tested = _get_domain(operand), key.offset, False
                optional, end = node.function == "_[?_]", self._find_closing_bracket(key)
            case FunctionCall(function="@in", args=(Literal(value=str(name)) as key, operand)):
                domain, at, tested, optional, end = _get_domain(operand), key.offset, True, False, -1
            case _:
                return None
        if domain is None:
            return None
        span = (_get_root_offset(operand), end) if at >= 0 and end >= 0 else None
        return FieldReference(*domain, name, node.offset, max(at, 0), tested, optional, span)

    def _find_name_offset(self, operand: Node, offset: int, name: str) -> int:
        """Where the name of a field is written: after the path it is a field of."""
        if isinstance(operand, FunctionCall) and operand.args and isinstance(operand.args[-1], Literal):
            offset = max(offset, operand.args[-1].offset + 1 + len(str(operand.args[-1].value)))
        return self._text.find(name, offset)

    def _find_closing_bracket(self, index: Literal) -> int:
        """Where the bracket after a literal index ends."""
        token = self._tokens.get(index.offset)
        return -1 if token is None else self._ends[token + 1]


def is_device(node: Node) -> bool:
    """Whether a node is the variable `device`."""
    return isinstance(node, Ident) and node.name == "device"


def _get_root_offset(node: Node) -> int:
    """Where the path of a node starts."""
    while not isinstance(node, Ident):
        match node:
            case Select(operand=operand) | FunctionCall(args=(operand, *_)):
                node = operand
            case _:
                break
    return node.offset


def _get_kind(node: Node) -> str | None:
    """`device.attributes` or `device.capacity`."""
    if isinstance(node, Select) and node.field in KINDS and is_device(node.operand) and not node.test:
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
    """A domain or kind that is read as a whole."""
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
