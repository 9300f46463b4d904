"""Label selectors: `app=web,tier in (a,b),!legacy`, and the `matchLabels` / `matchExpressions` documents.

Theory of operation: both notations become the same value, a set of requirements that must all hold. `a=b`,
`a==b`, `a in (b)` and a `matchLabels` entry are one requirement, `In` with one value. Values are sorted and
without duplicates, and so are the requirements, so equal selectors are equal values and have the same text. A
selector without requirements selects everything. (An absent selector selects nothing in Kubernetes; that is
`None`, and up to the caller.)

The grammar of the text is that of Kubernetes: `key`, `!key`, `key=value`, `key==value`, `key!=value`, `key in
(…)`, `key notin (…)`, `key>number`, `key<number`, joined by commas; an empty value is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from dray.values.names import check_label_value, check_qualified_name
from dray.values.quoting import quote_text


class LabelSelectorError(ValueError):
    """A selector that cannot be parsed: `reason` explains why, `position` is the offset in the text."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        where = "" if position is None else f"column {position + 1}: "
        super().__init__(f"label selector, {where}{reason}" if where else f"label selector: {reason}")
        self.reason = reason
        self.position = position


class SelectorOperator(StrEnum):
    """How a label relates to the values of a requirement; `Gt` and `Lt` are for nodes and query texts."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")


def parse_int64(text: str) -> int | None:
    """Parse a whole number that fits 64 bits; None for any other text."""
    match = _INTEGER.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _is_greater(value: str | None, values: Sequence[str]) -> bool:
    left, right = _parse_pair(value, values)
    return left is not None and right is not None and left > right


def _is_less(value: str | None, values: Sequence[str]) -> bool:
    left, right = _parse_pair(value, values)
    return left is not None and right is not None and left < right


def _parse_pair(value: str | None, values: Sequence[str]) -> tuple[int | None, int | None]:
    if value is None or len(values) != 1:
        return None, None
    return parse_int64(value), parse_int64(values[0])


_OPERATOR_TESTS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    SelectorOperator.IN: lambda value, values: value in values,
    SelectorOperator.NOT_IN: lambda value, values: value not in values,
    SelectorOperator.EXISTS: lambda value, values: value is not None,
    SelectorOperator.DOES_NOT_EXIST: lambda value, values: value is None,
    SelectorOperator.GT: _is_greater,
    SelectorOperator.LT: _is_less,
}


def matches_operator(operator: str, value: str | None, values: Sequence[str]) -> bool:
    """Whether a label's value (`None` when it is absent) satisfies an operator; an unknown operator is never
    satisfied.
    """
    test = _OPERATOR_TESTS.get(operator)
    return test is not None and test(value, values)


_OPERATOR_TEXTS: dict[SelectorOperator, Callable[[str, tuple[str, ...]], str]] = {
    SelectorOperator.IN: lambda key, values: (
        f"{key}={values[0]}" if len(values) == 1 else f"{key} in {_render_set(values)}"
    ),
    SelectorOperator.NOT_IN: lambda key, values: (
        f"{key}!={values[0]}" if len(values) == 1 else f"{key} notin {_render_set(values)}"
    ),
    SelectorOperator.EXISTS: lambda key, values: key,
    SelectorOperator.DOES_NOT_EXIST: lambda key, values: f"!{key}",
    SelectorOperator.GT: lambda key, values: f"{key}>{values[0]}",
    SelectorOperator.LT: lambda key, values: f"{key}<{values[0]}",
}


def _render_set(values: Sequence[str]) -> str:
    return f"({','.join(values)})"


@dataclass(frozen=True, slots=True, order=True)
class LabelRequirement:
    """One condition on one label."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy this condition."""
        return matches_operator(self.operator, labels.get(self.key), self.values)

    def __str__(self) -> str:
        return _OPERATOR_TEXTS[self.operator](self.key, self.values)


@dataclass(frozen=True, slots=True)
class ParsedLabelSelector:
    """Conditions that must all hold; without any, everything is selected."""

    requirements: tuple[LabelRequirement, ...] = ()

    @staticmethod
    def parse(text: str) -> ParsedLabelSelector:
        """Parse the text form, as in `labelSelector=` queries; raises `LabelSelectorError`."""
        return _build_selector(_SelectorParser(text).parse_requirements())

    @staticmethod
    def from_document(document: object) -> ParsedLabelSelector:
        """Parse `{matchLabels: …, matchExpressions: …}`; raises `LabelSelectorError`."""
        try:
            found = msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise LabelSelectorError(str(error)) from None
        exact = [
            _build_requirement(key, SelectorOperator.IN, (value,))
            for key, value in found.match_labels.items()
        ]
        return _build_selector(exact + [_from_expression(item) for item in found.match_expressions])

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = ParsedLabelSelector()


def _build_selector(requirements: Sequence[LabelRequirement]) -> ParsedLabelSelector:
    return ParsedLabelSelector(tuple(sorted(set(requirements))))


# --- documents ---


class _Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


_DOCUMENT_OPERATORS = (
    SelectorOperator.IN,
    SelectorOperator.NOT_IN,
    SelectorOperator.EXISTS,
    SelectorOperator.DOES_NOT_EXIST,
)


def _from_expression(found: _Expression) -> LabelRequirement:
    if found.operator not in _DOCUMENT_OPERATORS:
        raise LabelSelectorError(
            f"operator {quote_text(found.operator)} of key {quote_text(found.key)} is unknown; "
            "expected In, NotIn, Exists or DoesNotExist"
        )
    operator, values = SelectorOperator(found.operator), found.values or ()
    if (operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)) != bool(values):
        expected = "takes no values" if values else "needs at least one value"
        raise LabelSelectorError(f"operator `{operator}` of key {quote_text(found.key)} {expected}")
    return _build_requirement(found.key, operator, values)


def _build_requirement(key: str, operator: SelectorOperator, values: Sequence[str]) -> LabelRequirement:
    for fault in check_qualified_name(key):
        raise LabelSelectorError(f"key {quote_text(key)}: {fault}")
    for value in values:
        for fault in check_label_value(value):
            raise LabelSelectorError(f"value {quote_text(value)} of key {quote_text(key)}: {fault}")
    return LabelRequirement(key, operator, tuple(sorted(set(values))))


# --- texts ---

_BLANK = " \t\r\n"
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_EXACT = {
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GT,
    "<": SelectorOperator.LT,
}
_SETS = {"in": SelectorOperator.IN, "notin": SelectorOperator.NOT_IN}
_END = ""


class _SelectorParser:
    """Parser of the text form; `token` is the current token, `start` its offset."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> None:
        start = self.end
        while start < len(self.text) and self.text[start] in _BLANK:
            start += 1
        match = _TOKEN.match(self.text, start)
        self.start = start
        self.token = match[0] if match else _END
        self.end = start + len(self.token)

    def parse_requirements(self) -> list[LabelRequirement]:
        found: list[LabelRequirement] = []
        if self.token == _END:
            return found
        while True:
            found.append(self.parse_requirement())
            if self.token == _END:
                return found
            if self.token != ",":
                raise self.build_error("`,` or the end")
            self.advance()

    def parse_requirement(self) -> LabelRequirement:
        absent = self.token == "!"
        if absent:
            self.advance()
        key = self.parse_key()
        if absent:
            return LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST)
        if self.token in {_END, ","}:
            return LabelRequirement(key, SelectorOperator.EXISTS)
        if self.token in _EXACT:
            operator = _EXACT[self.token]
            self.advance()
            return LabelRequirement(key, operator, (self.parse_value(operator),))
        if self.token in _SETS:
            operator = _SETS[self.token]
            self.advance()
            return LabelRequirement(key, operator, self.parse_values(operator))
        raise self.build_error("`=`, `!=`, `in`, `notin`, `>`, `<`, `,` or the end")

    def parse_key(self) -> str:
        if self.token == _END or self.token in _SYMBOLS:
            raise self.build_error("a label key")
        for fault in check_qualified_name(self.token):
            raise LabelSelectorError(f"key {quote_text(self.token)}: {fault}", self.start)
        key = self.token
        self.advance()
        return key

    def parse_value(self, operator: SelectorOperator) -> str:
        """Parse a value, which may be empty: before `,`, `)` and the end no token is consumed."""
        if operator in (SelectorOperator.GT, SelectorOperator.LT) and parse_int64(self.token) is None:
            raise self.build_error(f"a whole number, which `{operator}` compares with")
        if self.token in {_END, ",", ")"}:
            return ""
        if self.token in _SYMBOLS:
            raise self.build_error("a value")
        for fault in check_label_value(self.token):
            raise LabelSelectorError(f"value {quote_text(self.token)}: {fault}", self.start)
        value = self.token
        self.advance()
        return value

    def parse_values(self, operator: SelectorOperator) -> tuple[str, ...]:
        if self.token != "(":
            raise self.build_error("`(`")
        found: set[str] = set()
        while self.token != ")":
            self.advance()
            found.add(self.parse_value(operator))
            if self.token not in {",", ")"}:
                raise self.build_error("`,` or `)`")
        self.advance()
        return tuple(sorted(found))

    def build_error(self, expected: str) -> LabelSelectorError:
        found = "the end" if self.token == _END else quote_text(self.token)
        return LabelSelectorError(f"found {found}, expected {expected}", self.start)
