"""The messages of the compiler, in words that help: what is there, what was expected, what to write instead.

Theory of operation: the compiler speaks as cel-go does, so that its messages can be searched for. Each row of
`_WORDS` recognises one of them; a message that no row knows is passed on as it is. Some rows also point more
exactly: at a name, where the compiler points at the bracket or the dot beside it.

Rules for this file: text in, text out; nothing is compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dray.api.devices.device_cel import DEVICE
from dray.cel import Env
from dray.cel.source import Issue
from dray.lint.suggestions import did_you_mean


class Said(NamedTuple):
    """One message in our words, and where to point."""

    message: str
    expected: str
    hint: str = ""
    offset: int | None = None


def in_words(text: str, issue: Issue, env: Env) -> Said:
    """What the compiler found, for people."""
    case = _Case(text, issue.offset, env)
    for pattern, say in _WORDS:
        match = pattern.match(issue.message)
        if match:
            said = say(match, case)
            return said._replace(offset=issue.offset if said.offset is None else max(0, said.offset))
    return Said(ticked(issue.message), "an expression of CEL", offset=issue.offset)


class _Case(NamedTuple):
    text: str
    offset: int
    env: Env

    @property
    def is_call(self) -> bool:
        return self.text[self.offset : self.offset + 1] == "("

    def before(self, name: str) -> int:
        """Where a name stands whose bracket the compiler pointed at."""
        return self.text.rfind(name, 0, self.offset) if self.is_call else self.offset


_OTHER_WORDS: Mapping[str, str] = MappingProxyType(
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
_WRITE_ATTRIBUTE = 'an attribute is `device.attributes["its.domain"].name`'


def _undefined_field(match: re.Match[str], case: _Case) -> Said:
    name = match["name"]
    fields = case.env.scope.fields[DEVICE.name]
    expected = "one of " + ", ".join(f"`{field}`" for field in fields)
    hint = did_you_mean(name, fields) or _WRITE_ATTRIBUTE
    return Said(f"`device` has no field `{name}`", expected, hint, case.text.find(name, case.offset))


def _undeclared(match: re.Match[str], case: _Case) -> Said:
    name = match["name"]
    other = _OTHER_WORDS.get(name)
    if case.is_call:
        known = [known for known in case.env.scope.functions if known.isidentifier()]
        hint = f"did you mean `{other}`?" if other else did_you_mean(name, [*known, *_MACROS])
        return Said(f"unknown function `{name}`", "a function of CEL", hint, case.before(name))
    if other:
        hint = f"did you mean `{other}`?"
    else:
        hint = did_you_mean(name, ["device"]) or f'text is written in quotes: `"{name}"`'
    return Said(f"unknown name `{name}`", "`device`, or a value", hint)


def _no_overload(match: re.Match[str], case: _Case) -> Said:
    function = match["name"]
    operator = function.startswith(("_", "-", "!", "@"))
    name = function.strip("_@").replace("_", "")
    types = [type_words(found) for found in _split(match["types"])]
    message = f"`{name}` does not take {' and '.join(with_article(found) for found in types)}"
    expected = (
        _taken(function, case.env) if not operator else _OPERANDS.get(name, "values that it is made for")
    )
    offset = case.offset if operator else case.before(name)
    return Said(message, expected, _overload_hint(name, types), offset)


_ORDERED = "two values of one type that has an order: numbers, texts, times"
_OPERANDS: Mapping[str, str] = MappingProxyType(
    {
        "==": "two values of one type",
        "!=": "two values of one type",
        **dict.fromkeys(("<", "<=", ">", ">="), _ORDERED),
        **dict.fromkeys(("&&", "||", "!"), "conditions"),
        "in": "a list or a map on the right",
    }
)


def _overload_hint(name: str, types: list[str]) -> str:
    if {_ATTRIBUTES, _CAPACITIES} & set(types):
        return f'{_WRITE_ATTRIBUTE}, a capacity `device.capacity["its.domain"].name`'
    for kind, example in (("quantity", 'quantity("10Gi")'), ("version", 'semver("1.2.3")')):
        if kind in types and name in ("<", "<=", ">", ">="):
            return f"{_plural(kind)} are compared by function: `….compareTo({example}) {name} 0`"
        if kind in types and ("text" in types or "int" in types):
            return f"what it is compared with must be {with_article(kind)} too: `{example}`"
    return ""


def _taken(function: str, env: Env) -> str:
    """The ways in which a function can be called."""
    shown = {}
    for overload in env.scope.functions.get(function, ()):
        params = [str(param).replace("kubernetes.", "").lower() for param in overload.params]
        inner = ", ".join(params[overload.member :])
        shown[f"`{f'{params[0]}.' if overload.member else ''}{function}({inner})`"] = True
    forms = list(shown)
    return " or ".join(forms[:_FEW]) + (" ..." if len(forms) > _FEW else "")


_FEW = 4


def _not_a_token(match: re.Match[str], case: _Case) -> Said:
    found = match["found"]
    if found[:1] in ('"', "'"):
        return Said("a quote is opened here and never closed", f"`{found[:1]}` at the end of the text")
    before = case.text[max(0, case.offset - 2) : case.offset]
    if found == "=" and before in ("==", "!="):
        return Said(f"`{before}=` is no operator", f"`{before}`", f"did you mean `{before}`?")
    other = _OTHER_WORDS.get(found)
    hint = f"did you mean `{other}`?" if other else ""
    return Said(f"`{found}` has no meaning here", "an operator, a name or a value", hint)


def _unexpected(match: re.Match[str], case: _Case) -> Said:
    found, expected = match["found"], match["expected"]
    other = _OTHER_WORDS.get(found)
    hint = f"did you mean `{other}`?" if other else ""
    if expected.startswith("{"):
        expected, what = "a value", "a value is missing"
    elif expected == "<EOF>":
        expected, what = "an operator such as `&&`, or the end", f"`{found}` does not belong here"
    else:
        expected, what = ticked(expected), f"`{found}` does not belong here"
    if found == "<EOF>":
        what = "the expression ends too early"
    elif what == "a value is missing":
        what = f"{what} before `{found}`"
    return Said(what, expected, hint)


def _missing(match: re.Match[str], case: _Case) -> Said:
    return Said(f"`{match['what']}` is missing", f"`{match['what']}`")


def _reserved(match: re.Match[str], case: _Case) -> Said:
    name = match["name"]
    other = _OTHER_WORDS.get(name)
    hint = f"did you mean `{other}`?" if other else f'text is written in quotes: `"{name}"`'
    return Said(f"`{name}` is a reserved word", "another name, or text in quotes", hint)


def _has(match: re.Match[str], case: _Case) -> Said:
    return Said(
        "`has` cannot test this",
        'a field behind a dot: `has(device.attributes["its.domain"].name)`',
        'with brackets, write `"name" in device.attributes["its.domain"]`',
    )


def _no_fields(match: re.Match[str], case: _Case) -> Said:
    return Said(f"{with_article(type_words(match['type']))} has no fields", "a function, or the value itself")


def _bad_argument(match: re.Match[str], case: _Case) -> Said:
    name = match["name"]
    return Said(f"`{name}` cannot read its argument", _ARGUMENTS.get(name, "an argument that it can read"))


_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "matches": "a regular expression as RE2 knows them",
        "duration": 'a duration, for example `"90s"`',
        "timestamp": 'a time, for example `"2026-01-01T00:00:00Z"`',
    }
)


def _other_type(match: re.Match[str], case: _Case) -> Said:
    found, wanted = type_words(match["found"]), type_words(match["wanted"])
    return Said(
        f"this is {with_article(found)} among values that are {_plural(wanted)}", with_article(wanted)
    )


_WORDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Case], Said]], ...] = (
    (re.compile(r"undefined field '(?P<name>.*)'$"), _undefined_field),
    (re.compile(r"undeclared reference to '(?P<name>[^']*)'"), _undeclared),
    (
        re.compile(r"found no matching overload for '(?P<name>[^']*)' applied to '(?P<types>.*)'$"),
        _no_overload,
    ),
    (re.compile(r"Syntax error: token recognition error at: '(?P<found>.*)'$", re.DOTALL), _not_a_token),
    (
        re.compile(
            r"Syntax error: (?:extraneous|mismatched) input '(?P<found>.*)' expecting (?P<expected>.*)$"
        ),
        _unexpected,
    ),
    (re.compile(r"Syntax error: missing '(?P<what>.)' at "), _missing),
    (re.compile(r"reserved identifier: (?P<name>\w+)"), _reserved),
    (re.compile(r"invalid argument to has\(\) macro"), _has),
    (re.compile(r"type '(?P<type>.*)' does not support field selection"), _no_fields),
    (re.compile(r"invalid (?P<name>\w+) argument"), _bad_argument),
    (re.compile(r"expected type '(?P<wanted>.*)' but found '(?P<found>.*)'$"), _other_type),
)


# --- words ---

_ATTRIBUTES, _CAPACITIES = "all attributes of a domain", "all capacities of a domain"
_TYPES: Mapping[str, str] = MappingProxyType(
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


def type_words(name: str) -> str:
    return _TYPES.get(name, name)


def with_article(noun: str) -> str:
    if noun in ("text", "null", _ATTRIBUTES, _CAPACITIES):
        return noun
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _plural(noun: str) -> str:
    return "quantities" if noun == "quantity" else f"{noun}s"


def _split(types: str) -> Iterator[str]:
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


def ticked(message: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", message.partition("\n")[0])
