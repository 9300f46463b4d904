"""Label selectors: `app=web,tier in (a,b),!legacy`, and the `matchLabels` / `matchExpressions` documents.

Theory of operation: both notations become the same thing, a set of requirements that must all hold. `a=b`,
`a==b`, `a in (b)` and a `matchLabels` entry are one requirement, `In` with one value. Values are sorted and
without duplicates, and so are the requirements, so equal selectors are equal values and print the same text.
A selector without requirements selects everything. (An absent selector selects nothing in Kubernetes; that
is `None`, and for the caller to judge.)

The grammar of the text is that of Kubernetes: `key`, `!key`, `key=value`, `key==value`, `key!=value`,
`key in (…)`, `key notin (…)`, `key>number`, `key<number`, joined by commas; an empty value is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from dray.values.names import label_value, qualified_name
from dray.values.quoting import quoted


class LabelSelectorError(ValueError):
    """A selector that cannot be read: `reason` says why, `position` where in the text, counted from 0."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        where = "" if position is None else f"column {position + 1}: "
        super().__init__(f"label selector, {where}{reason}" if where else f"label selector: {reason}")
        self.reason = reason
        self.position = position


class Operator(StrEnum):
    """How a label relates to the values of a requirement; `Gt` and `Lt` are for nodes and query texts."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")


def int64(text: str) -> int | None:
    """The whole number a text stands for, if it is one and fits 64 bits."""
    match = _INTEGER.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _greater(value: str | None, values: Sequence[str]) -> bool:
    left, right = _pair(value, values)
    return left is not None and right is not None and left > right


def _less(value: str | None, values: Sequence[str]) -> bool:
    left, right = _pair(value, values)
    return left is not None and right is not None and left < right


def _pair(value: str | None, values: Sequence[str]) -> tuple[int | None, int | None]:
    if value is None or len(values) != 1:
        return None, None
    return int64(value), int64(values[0])


_TESTS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    Operator.IN: lambda value, values: value in values,
    Operator.NOT_IN: lambda value, values: value not in values,
    Operator.EXISTS: lambda value, values: value is not None,
    Operator.DOES_NOT_EXIST: lambda value, values: value is None,
    Operator.GT: _greater,
    Operator.LT: _less,
}


def holds(operator: str, value: str | None, values: Sequence[str]) -> bool:
    """Whether a label's value (`None` when it is absent) satisfies an operator; an unknown one never is."""
    test = _TESTS.get(operator)
    return test is not None and test(value, values)


_TEXTS: dict[Operator, Callable[[str, tuple[str, ...]], str]] = {
    Operator.IN: lambda key, values: f"{key}={values[0]}" if len(values) == 1 else f"{key} in {_set(values)}",
    Operator.NOT_IN: lambda key, values: (
        f"{key}!={values[0]}" if len(values) == 1 else f"{key} notin {_set(values)}"
    ),
    Operator.EXISTS: lambda key, values: key,
    Operator.DOES_NOT_EXIST: lambda key, values: f"!{key}",
    Operator.GT: lambda key, values: f"{key}>{values[0]}",
    Operator.LT: lambda key, values: f"{key}<{values[0]}",
}


def _set(values: Sequence[str]) -> str:
    return f"({','.join(values)})"


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy this condition."""
        return holds(self.operator, labels.get(self.key), self.values)

    def __str__(self) -> str:
        return _TEXTS[self.operator](self.key, self.values)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Conditions that must all hold; without any, everything is selected."""

    requirements: tuple[Requirement, ...] = ()

    @staticmethod
    def parse(text: str) -> LabelSelector:
        """Read the text form, as in `labelSelector=` queries; raises `LabelSelectorError`."""
        return _selector(_Reader(text).requirements())

    @staticmethod
    def read(document: object) -> LabelSelector:
        """Read `{matchLabels: …, matchExpressions: …}`; raises `LabelSelectorError`."""
        try:
            found = msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise LabelSelectorError(str(error)) from None
        exact = [_checked(key, Operator.IN, (value,)) for key, value in found.match_labels.items()]
        return _selector(exact + [_from_expression(item) for item in found.match_expressions])

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()


def _selector(requirements: Sequence[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(set(requirements))))


# --- documents ---


class _Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


_DOCUMENT_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)


def _from_expression(found: _Expression) -> Requirement:
    if found.operator not in _DOCUMENT_OPERATORS:
        raise LabelSelectorError(
            f"operator {quoted(found.operator)} of key {quoted(found.key)} is unknown; "
            "expected In, NotIn, Exists or DoesNotExist"
        )
    operator, values = Operator(found.operator), found.values or ()
    if (operator in (Operator.IN, Operator.NOT_IN)) != bool(values):
        wish = "takes no values" if values else "needs at least one value"
        raise LabelSelectorError(f"operator `{operator}` of key {quoted(found.key)} {wish}")
    return _checked(found.key, operator, values)


def _checked(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    for fault in qualified_name(key):
        raise LabelSelectorError(f"key {quoted(key)}: {fault}")
    for value in values:
        for fault in label_value(value):
            raise LabelSelectorError(f"value {quoted(value)} of key {quoted(key)}: {fault}")
    return Requirement(key, operator, tuple(sorted(set(values))))


# --- texts ---

_BLANK = " \t\r\n"
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_EXACT = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN, ">": Operator.GT, "<": Operator.LT}
_SETS = {"in": Operator.IN, "notin": Operator.NOT_IN}
_END = ""


class _Reader:
    """One walk over the tokens of a text; `token` is the current one, `at` where it begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> None:
        start = self.end
        while start < len(self.text) and self.text[start] in _BLANK:
            start += 1
        match = _TOKEN.match(self.text, start)
        self.at = start
        self.token = match[0] if match else _END
        self.end = start + len(self.token)

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self.token == _END:
            return found
        while True:
            found.append(self.requirement())
            if self.token == _END:
                return found
            if self.token != ",":
                raise self.surprise("`,` or the end")
            self.advance()

    def requirement(self) -> Requirement:
        absent = self.token == "!"
        if absent:
            self.advance()
        key = self.key()
        if absent:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self.token in {_END, ","}:
            return Requirement(key, Operator.EXISTS)
        if self.token in _EXACT:
            operator = _EXACT[self.token]
            self.advance()
            return Requirement(key, operator, (self.value(operator),))
        if self.token in _SETS:
            operator = _SETS[self.token]
            self.advance()
            return Requirement(key, operator, self.values(operator))
        raise self.surprise("`=`, `!=`, `in`, `notin`, `>`, `<`, `,` or the end")

    def key(self) -> str:
        if self.token == _END or self.token in _SYMBOLS:
            raise self.surprise("a label key")
        for fault in qualified_name(self.token):
            raise LabelSelectorError(f"key {quoted(self.token)}: {fault}", self.at)
        key = self.token
        self.advance()
        return key

    def value(self, operator: Operator) -> str:
        """A value, which may be empty: nothing is taken before `,`, `)` and the end."""
        if operator in (Operator.GT, Operator.LT) and int64(self.token) is None:
            raise self.surprise(f"a whole number, which `{operator}` compares with")
        if self.token in {_END, ",", ")"}:
            return ""
        if self.token in _SYMBOLS:
            raise self.surprise("a value")
        for fault in label_value(self.token):
            raise LabelSelectorError(f"value {quoted(self.token)}: {fault}", self.at)
        value = self.token
        self.advance()
        return value

    def values(self, operator: Operator) -> tuple[str, ...]:
        if self.token != "(":
            raise self.surprise("`(`")
        found: set[str] = set()
        while self.token != ")":
            self.advance()
            found.add(self.value(operator))
            if self.token not in {",", ")"}:
                raise self.surprise("`,` or `)`")
        self.advance()
        return tuple(sorted(found))

    def surprise(self, expected: str) -> LabelSelectorError:
        found = "the end" if self.token == _END else quoted(self.token)
        return LabelSelectorError(f"found {found}, expected {expected}", self.at)
