"""The messages of the compiler, in words that help: what is there, what was expected, what to write instead.

Theory of operation: the compiler speaks as cel-go does, so that its messages can be searched for. Each row of
`_TRANSLATIONS` recognises one of them; a message that no row knows is passed on as it is. Some rows also
point more exactly: at a name, where the compiler points at the bracket or the dot beside it.

Rules for this file: text in, text out; nothing is compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dray.api.devices.device_cel import DEVICE_TYPE
from dray.cel import Env
from dray.cel.source import ExpressionIssue
from dray.lint.suggestions import suggest_name


class CelMessage(NamedTuple):
    """One message in our words, and where to point."""

    message: str
    expected: str
    hint: str = ""
    offset: int | None = None


def translate_issue(text: str, issue: ExpressionIssue, env: Env) -> CelMessage:
    """What the compiler found, for people."""
    case = _IssueContext(text, issue.offset, env)
    for pattern, say in _TRANSLATIONS:
        match = pattern.match(issue.message)
        if match:
            said = say(match, case)
            return said._replace(offset=issue.offset if said.offset is None else max(0, said.offset))
    return CelMessage(quote_with_backticks(issue.message), "an expression of CEL", offset=issue.offset)


class _IssueContext(NamedTuple):
    text: str
    offset: int
    env: Env

    @property
    def is_call(self) -> bool:
        return self.text[self.offset : self.offset + 1] == "("

    def find_name_before(self, name: str) -> int:
        """Where a name stands whose bracket the compiler pointed at."""
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
"""Words of other languages, and what they are here."""
_MACROS = ("has", "all", "exists", "exists_one", "map", "filter", "optMap", "transformList", "transformMap")
_ATTRIBUTE_SYNTAX_HINT = 'an attribute is `device.attributes["its.domain"].name`'


def _explain_undefined_field(match: re.Match[str], context: _IssueContext) -> CelMessage:
    name = match["name"]
    fields = context.env.scope.fields[DEVICE_TYPE.name]
    expected = "one of " + ", ".join(f"`{field}`" for field in fields)
    hint = suggest_name(name, fields) or _ATTRIBUTE_SYNTAX_HINT
    return CelMessage(
        f"`device` has no field `{name}`", expected, hint, context.text.find(name, context.offset)
    )


def _explain_undeclared(match: re.Match[str], context: _IssueContext) -> CelMessage:
    name = match["name"]
    other = _EQUIVALENTS.get(name)
    if context.is_call:
        known = [known for known in context.env.scope.functions if known.isidentifier()]
        hint = f"did you mean `{other}`?" if other else suggest_name(name, [*known, *_MACROS])
        return CelMessage(
            f"unknown function `{name}`", "a function of CEL", hint, context.find_name_before(name)
        )
    if other:
        hint = f"did you mean `{other}`?"
    else:
        hint = suggest_name(name, ["device"]) or f'text is written in quotes: `"{name}"`'
    return CelMessage(f"unknown name `{name}`", "`device`, or a value", hint)


def _explain_no_overload(match: re.Match[str], context: _IssueContext) -> CelMessage:
    function = match["name"]
    operator = function.startswith(("_", "-", "!", "@"))
    name = function.strip("_@").replace("_", "")
    types = [describe_type(found) for found in _split_types(match["types"])]
    message = f"`{name}` does not take {' and '.join(add_article(found) for found in types)}"
    expected = (
        _list_call_forms(function, context.env)
        if not operator
        else _EXPECTED_OPERANDS.get(name, "values that it is made for")
    )
    offset = context.offset if operator else context.find_name_before(name)
    return CelMessage(message, expected, _suggest_overload(name, types), offset)


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
            return f"what it is compared with must be {add_article(kind)} too: `{example}`"
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


def _explain_bad_token(match: re.Match[str], context: _IssueContext) -> CelMessage:
    found = match["found"]
    if found[:1] in ('"', "'"):
        return CelMessage("a quote is opened here and never closed", f"`{found[:1]}` at the end of the text")
    before = context.text[max(0, context.offset - 2) : context.offset]
    if found == "=" and before in ("==", "!="):
        return CelMessage(f"`{before}=` is no operator", f"`{before}`", f"did you mean `{before}`?")
    other = _EQUIVALENTS.get(found)
    hint = f"did you mean `{other}`?" if other else ""
    return CelMessage(f"`{found}` has no meaning here", "an operator, a name or a value", hint)


def _explain_unexpected_input(match: re.Match[str], context: _IssueContext) -> CelMessage:
    found, expected = match["found"], match["expected"]
    other = _EQUIVALENTS.get(found)
    hint = f"did you mean `{other}`?" if other else ""
    if expected.startswith("{"):
        expected, what = "a value", "a value is missing"
    elif expected == "<EOF>":
        expected, what = "an operator such as `&&`, or the end", f"`{found}` does not belong here"
    else:
        expected, what = quote_with_backticks(expected), f"`{found}` does not belong here"
    if found == "<EOF>":
        what = "the expression ends too early"
    elif what == "a value is missing":
        what = f"{what} before `{found}`"
    return CelMessage(what, expected, hint)


def _explain_missing_input(match: re.Match[str], context: _IssueContext) -> CelMessage:
    return CelMessage(f"`{match['what']}` is missing", f"`{match['what']}`")


def _explain_reserved_word(match: re.Match[str], context: _IssueContext) -> CelMessage:
    name = match["name"]
    other = _EQUIVALENTS.get(name)
    hint = f"did you mean `{other}`?" if other else f'text is written in quotes: `"{name}"`'
    return CelMessage(f"`{name}` is a reserved word", "another name, or text in quotes", hint)


def _explain_has_argument(match: re.Match[str], context: _IssueContext) -> CelMessage:
    return CelMessage(
        "`has` cannot test this",
        'a field behind a dot: `has(device.attributes["its.domain"].name)`',
        'with brackets, write `"name" in device.attributes["its.domain"]`',
    )


def _explain_no_fields(match: re.Match[str], context: _IssueContext) -> CelMessage:
    return CelMessage(
        f"{add_article(describe_type(match['type']))} has no fields", "a function, or the value itself"
    )


def _explain_bad_argument(match: re.Match[str], context: _IssueContext) -> CelMessage:
    name = match["name"]
    return CelMessage(
        f"`{name}` cannot read its argument", _EXPECTED_ARGUMENTS.get(name, "an argument that it can read")
    )


_EXPECTED_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "matches": "a regular expression as RE2 knows them",
        "duration": 'a duration, for example `"90s"`',
        "timestamp": 'a time, for example `"2026-01-01T00:00:00Z"`',
    }
)


def _explain_type_mismatch(match: re.Match[str], context: _IssueContext) -> CelMessage:
    found, wanted = describe_type(match["found"]), describe_type(match["wanted"])
    return CelMessage(
        f"this is {add_article(found)} among values that are {_pluralize(wanted)}", add_article(wanted)
    )


_TRANSLATIONS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _IssueContext], CelMessage]], ...] = (
    (re.compile(r"undefined field '(?P<name>.*)'$"), _explain_undefined_field),
    (re.compile(r"undeclared reference to '(?P<name>[^']*)'"), _explain_undeclared),
    (
        re.compile(r"found no matching overload for '(?P<name>[^']*)' applied to '(?P<types>.*)'$"),
        _explain_no_overload,
    ),
    (
        re.compile(r"Syntax error: token recognition error at: '(?P<found>.*)'$", re.DOTALL),
        _explain_bad_token,
    ),
    (
        re.compile(
            r"Syntax error: (?:extraneous|mismatched) input '(?P<found>.*)' expecting (?P<expected>.*)$"
        ),
        _explain_unexpected_input,
    ),
    (re.compile(r"Syntax error: missing '(?P<what>.)' at "), _explain_missing_input),
    (re.compile(r"reserved identifier: (?P<name>\w+)"), _explain_reserved_word),
    (re.compile(r"invalid argument to has\(\) macro"), _explain_has_argument),
    (re.compile(r"type '(?P<type>.*)' does not support field selection"), _explain_no_fields),
    (re.compile(r"invalid (?P<name>\w+) argument"), _explain_bad_argument),
    (re.compile(r"expected type '(?P<wanted>.*)' but found '(?P<found>.*)'$"), _explain_type_mismatch),
)


# --- words ---

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


def describe_type(name: str) -> str:
    return _TYPE_WORDS.get(name, name)


def add_article(noun: str) -> str:
    if noun in ("text", "null", _ATTRIBUTES, _CAPACITIES):
        return noun
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _pluralize(noun: str) -> str:
    return "quantities" if noun == "quantity" else f"{noun}s"


def _split_types(types: str) -> Iterator[str]:
    """The types of a call, as the compiler lists them: `(int, string)` or `string.(int)`."""
    target, dot, rest = types.rpartition(".(")
    if dot:
        yield target
    inner, depth, start = (rest if dot else types[1:])[:-1], 0, 0
    for i, char in enumerate(f"{inner},"):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            if inner[start:i].strip():
                yield inner[start:i].strip()
            start = i + 1


def quote_with_backticks(message: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", message.partition("\n")[0])
