"""Messages of the CEL compiler reworded for lint: what is there, what was expected, what to write instead.

Theory of operation: the messages of the compiler are those of cel-go, so that people can search for them.
Each function below rewords one cause of an issue; an issue without a cause keeps its message. Some also point
more exactly: at a name, where the compiler points at the bracket or the dot beside it.

Rules for this file: causes in, text out; nothing is compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from dray.api.devices.device_cel import DEVICE_TYPE
from dray.cel import Env
from dray.cel.issue_causes import (
    ExpectedInput,
    InvalidHasArgument,
    InvalidLiteralArgument,
    MissingBracket,
    MixedTypes,
    NoFieldSelection,
    NoMatchingOverload,
    ReservedWord,
    UndeclaredReference,
    UndefinedField,
    UnexpectedInput,
    UnknownToken,
)
from dray.cel.source import ExpressionIssue
from dray.cel.types import Type, format_type
from dray.lint.findings import FieldFinding
from dray.lint.suggestions import add_article, suggest_name


def report_issue(text: str, issue: ExpressionIssue, env: Env) -> FieldFinding:
    """The finding about an issue that the compiler found, for people; it has no path yet."""
    finding = _build_finding(quote_with_backticks(issue.message), "an expression of CEL")
    if issue.cause is not None:
        finding = _EXPLANATIONS[type(issue.cause)](issue.cause, _IssueContext(text, issue.offset, env))
    return finding if finding.text_offset else replace(finding, text_offset=(text, issue.offset))


def _build_finding(
    message: str, expected: str, hint: str = "", at: tuple[str, int] | None = None
) -> FieldFinding:
    """A finding that points at an offset; at the issue when there is none."""
    place = None if at is None else (at[0], max(0, at[1]))
    return FieldFinding("selector-broken", "", message, expected=expected, hint=hint, text_offset=place)


class _IssueContext(NamedTuple):
    text: str
    offset: int
    env: Env

    @property
    def is_call(self) -> bool:
        return self.text[self.offset : self.offset + 1] == "("

    def find_name_before(self, name: str) -> int:
        """The offset of a name whose bracket the compiler points at."""
        return self.text.rfind(name, 0, self.offset) if self.is_call else self.offset


_EQUIVALENTS: Mapping[str, str] = MappingProxyType(
    {
        "True": "true", "False": "false", "TRUE": "true", "FALSE": "false", "None": "null", "nil": "null",
        "and": "&&", "AND": "&&", "or": "||", "OR": "||", "not": "!", "NOT": "!", "is": "==",
        "=": "==", "&": "&&", "|": "||", "===": "==", "if": "condition ? one : other",
        "len": "size", "length": "size", "count": "size", "any": "exists", "some": "exists", "every": "all",
        "regex": "matches", "match": "matches", "test": "matches", "version": "semver",
        "lower": "lowerAscii", "toLowerCase": "lowerAscii", "upper": "upperAscii",
        "toUpperCase": "upperAscii",
        "greaterThan": "isGreaterThan", "lessThan": "isLessThan", "compare": "compareTo",
        "Quantity": "quantity", "attributes": "device.attributes", "attribute": "device.attributes",
        "capacity": "device.capacity", "capacities": "device.capacity", "driver": "device.driver",
    }
)  # fmt: skip
"""Words of other languages, and their equivalents in CEL."""
_MACROS = ("has", "all", "exists", "exists_one", "map", "filter", "optMap", "transformList", "transformMap")
_ATTRIBUTE_SYNTAX_HINT = 'an attribute is `device.attributes["its.domain"].name`'


def _explain_undefined_field(cause: UndefinedField, context: _IssueContext) -> FieldFinding:
    name = cause.field
    fields = context.env.scope.fields[DEVICE_TYPE.name]
    expected = "one of " + ", ".join(f"`{field}`" for field in fields)
    hint = suggest_name(name, fields) or _ATTRIBUTE_SYNTAX_HINT
    return _build_finding(
        f"`device` has no field `{name}`",
        expected,
        hint,
        (context.text, context.text.find(name, context.offset)),
    )


def _explain_undeclared(cause: UndeclaredReference, context: _IssueContext) -> FieldFinding:
    name = cause.name
    other = _EQUIVALENTS.get(name)
    if context.is_call:
        known = [known for known in context.env.scope.functions if known.isidentifier()]
        hint = f"did you mean `{other}`?" if other else suggest_name(name, [*known, *_MACROS])
        return _build_finding(
            f"unknown function `{name}`",
            "a function of CEL",
            hint,
            (context.text, context.find_name_before(name)),
        )
    if other:
        hint = f"did you mean `{other}`?"
    else:
        hint = suggest_name(name, ["device"]) or f'text is written in quotes: `"{name}"`'
    return _build_finding(f"unknown name `{name}`", "`device`, or a value", hint)


def _explain_no_overload(cause: NoMatchingOverload, context: _IssueContext) -> FieldFinding:
    function = cause.function
    operator = function.startswith(("_", "-", "!", "@"))
    name = function.strip("_@").replace("_", "")
    types = [describe_type(found) for found in cause.types]
    message = f"`{name}` does not take {' and '.join(add_type_article(found) for found in types)}"
    expected = (
        _list_call_forms(function, context.env)
        if not operator
        else _EXPECTED_OPERANDS.get(name, "values that it is made for")
    )
    offset = context.offset if operator else context.find_name_before(name)
    return _build_finding(message, expected, _suggest_overload(name, types), (context.text, offset))


_EXPECTED_ORDERED = "two values of one type that has an order: numbers, texts, times"
_EXPECTED_OPERANDS: Mapping[str, str] = MappingProxyType(
    {
        "==": "two values of one type",
        "!=": "two values of one type",
        **dict.fromkeys(("<", "<=", ">", ">="), _EXPECTED_ORDERED),
        **dict.fromkeys(("&&", "||", "!"), "conditions"),
        "in": "a list or a map on the right",
    }
)


def _suggest_overload(name: str, types: list[str]) -> str:
    if {_ATTRIBUTES, _CAPACITIES} & set(types):
        return f'{_ATTRIBUTE_SYNTAX_HINT}, a capacity `device.capacity["its.domain"].name`'
    for kind, example in (("quantity", 'quantity("10Gi")'), ("version", 'semver("1.2.3")')):
        if kind in types and name in ("<", "<=", ">", ">="):
            return f"{_pluralize(kind)} are compared by function: `….compareTo({example}) {name} 0`"
        if kind in types and ("text" in types or "int" in types):
            return f"what it is compared with must be {add_type_article(kind)} too: `{example}`"
    return ""


def _list_call_forms(function: str, env: Env) -> str:
    """The ways in which a function can be called."""
    shown = {}
    for overload in env.scope.functions.get(function, ()):
        params = [str(param).replace("kubernetes.", "").lower() for param in overload.params]
        inner = ", ".join(params[overload.member :])
        shown[f"`{f'{params[0]}.' if overload.member else ''}{function}({inner})`"] = True
    forms = list(shown)
    return " or ".join(forms[:_MAX_FORMS]) + (" ..." if len(forms) > _MAX_FORMS else "")


_MAX_FORMS = 4


def _explain_bad_token(cause: UnknownToken, context: _IssueContext) -> FieldFinding:
    found = cause.text
    if found[:1] in ('"', "'"):
        return _build_finding(
            "a quote is opened here and never closed", f"`{found[:1]}` at the end of the text"
        )
    before = context.text[max(0, context.offset - 2) : context.offset]
    if found == "=" and before in ("==", "!="):
        return _build_finding(f"`{before}=` is no operator", f"`{before}`", f"did you mean `{before}`?")
    other = _EQUIVALENTS.get(found)
    hint = f"did you mean `{other}`?" if other else ""
    return _build_finding(f"`{found}` has no meaning here", "an operator, a name or a value", hint)


def _explain_unexpected_input(cause: UnexpectedInput, context: _IssueContext) -> FieldFinding:
    other = _EQUIVALENTS.get(cause.found)
    hint = f"did you mean `{other}`?" if other else ""
    message = f"`{cause.found}` does not belong here"
    if cause.expected is ExpectedInput.OPERAND:
        expected, message = "a value", f"a value is missing before `{cause.found}`"
    elif cause.expected is ExpectedInput.END:
        expected = "an operator such as `&&`, or the end"
    else:
        expected = f"`{cause.bracket}`"
    return _build_finding(message if cause.found else "the expression ends too early", expected, hint)


def _explain_missing_input(cause: MissingBracket, context: _IssueContext) -> FieldFinding:
    return _build_finding(f"`{cause.bracket}` is missing", f"`{cause.bracket}`")


def _explain_reserved_word(cause: ReservedWord, context: _IssueContext) -> FieldFinding:
    name = cause.word
    other = _EQUIVALENTS.get(name)
    hint = f"did you mean `{other}`?" if other else f'text is written in quotes: `"{name}"`'
    return _build_finding(f"`{name}` is a reserved word", "another name, or text in quotes", hint)


def _explain_has_argument(cause: InvalidHasArgument, context: _IssueContext) -> FieldFinding:
    return _build_finding(
        "`has` cannot test this",
        'a field behind a dot: `has(device.attributes["its.domain"].name)`',
        'with brackets, write `"name" in device.attributes["its.domain"]`',
    )


def _explain_no_fields(cause: NoFieldSelection, context: _IssueContext) -> FieldFinding:
    return _build_finding(
        f"{add_type_article(describe_type(cause.type))} has no fields", "a function, or the value itself"
    )


def _explain_bad_argument(cause: InvalidLiteralArgument, context: _IssueContext) -> FieldFinding:
    name = cause.function
    return _build_finding(
        f"`{name}` cannot read its argument", _EXPECTED_ARGUMENTS.get(name, "an argument that it can read")
    )


_EXPECTED_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "matches": "a regular expression as RE2 knows them",
        "duration": 'a duration, for example `"90s"`',
        "timestamp": 'a time, for example `"2026-01-01T00:00:00Z"`',
    }
)


def _explain_type_mismatch(cause: MixedTypes, context: _IssueContext) -> FieldFinding:
    found, wanted = describe_type(cause.found), describe_type(cause.expected)
    return _build_finding(
        f"this is {add_type_article(found)} among values that are {_pluralize(wanted)}",
        add_type_article(wanted),
    )


_EXPLANATIONS: Mapping[type, Callable[[Any, _IssueContext], FieldFinding]] = MappingProxyType(
    {
        UndefinedField: _explain_undefined_field,
        UndeclaredReference: _explain_undeclared,
        NoMatchingOverload: _explain_no_overload,
        UnknownToken: _explain_bad_token,
        UnexpectedInput: _explain_unexpected_input,
        MissingBracket: _explain_missing_input,
        ReservedWord: _explain_reserved_word,
        InvalidHasArgument: _explain_has_argument,
        NoFieldSelection: _explain_no_fields,
        InvalidLiteralArgument: _explain_bad_argument,
        MixedTypes: _explain_type_mismatch,
    }
)
"""How each cause is reworded."""


# --- types in words ---

_ATTRIBUTES, _CAPACITIES = "all attributes of a domain", "all capacities of a domain"
_TYPE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "kubernetes.Quantity": "quantity",
        "kubernetes.Semver": "version",
        "kubernetes.DRADevice": "device",
        "string": "text",
        "dyn": "attribute",
        "any": "attribute",
        "google.protobuf.Any": "attribute",
        "map(string, dyn)": _ATTRIBUTES,
        "map(string, any)": _ATTRIBUTES,
        "map(string, kubernetes.Quantity)": _CAPACITIES,
    }
)


def describe_type(one: Type) -> str:
    """A type in words."""
    name = format_type(one)
    return _TYPE_WORDS.get(name, name)


def add_type_article(noun: str) -> str:
    """A type in words with its article, where it needs one."""
    return noun if noun in ("text", "null", _ATTRIBUTES, _CAPACITIES) else add_article(noun)


def _pluralize(noun: str) -> str:
    return "quantities" if noun == "quantity" else f"{noun}s"


def quote_with_backticks(message: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", message.partition("\n")[0])
