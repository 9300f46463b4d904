"""Causes of compile issues as values, for programs that need more than the message.

The messages of issues are those of cel-go, so that people can search for them. A program never parses them:
an issue whose parts a program needs carries its cause.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from dray.cel.types import Type


class UndefinedField(NamedTuple):
    """A field that the struct does not have."""

    field: str


class UndeclaredReference(NamedTuple):
    """A name that is neither a variable, a function nor a type."""

    name: str


class NoMatchingOverload(NamedTuple):
    """A function or operator that does not accept these types; a member call starts with its target."""

    function: str
    types: tuple[Type, ...]


class UnknownToken(NamedTuple):
    """A stretch of text that is no token."""

    text: str


class ExpectedInput(StrEnum):
    """What the grammar allows where the parser stopped."""

    OPERAND = "operand"
    END = "end"
    CLOSING_BRACKET = "closing bracket"


class UnexpectedInput(NamedTuple):
    """A token that does not belong here; `found` is empty at the end of the text."""

    found: str
    expected: ExpectedInput
    bracket: str = ""


class MissingBracket(NamedTuple):
    """A bracket that is never closed."""

    bracket: str


class ReservedWord(NamedTuple):
    """A reserved word where a name is expected."""

    word: str


class InvalidHasArgument(NamedTuple):
    """An argument of the macro `has` that is no field selection."""


class NoFieldSelection(NamedTuple):
    """A field of a type without fields."""

    type: Type


class InvalidLiteralArgument(NamedTuple):
    """A literal argument that the function cannot parse."""

    function: str


class MixedTypes(NamedTuple):
    """A value of another type than the others of a list or map."""

    expected: Type
    found: Type


IssueCause: TypeAlias = (
    UndefinedField
    | UndeclaredReference
    | NoMatchingOverload
    | UnknownToken
    | UnexpectedInput
    | MissingBracket
    | ReservedWord
    | InvalidHasArgument
    | NoFieldSelection
    | InvalidLiteralArgument
    | MixedTypes
)
