"""Selectors that cannot be used, whatever the devices are.

Theory of operation: a selector is compiled as a new one, under the chosen gates. What the compiler finds is
put into words (see `compilerwords`). An amount or version that is written out and cannot be read does
compile, and then fails on every device; it is found here, too.

Rules for this file: no device is looked at. Complaints carry no path; whoever asks knows where the selector
stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from dray.api.devices.device_cel import COST_LIMIT, MAX_EXPRESSION, Selector, compile_selector, environment
from dray.cel import CompileFault, Env, EvalFault, Program
from dray.cel.source import Issue
from dray.cel.syntax.lexer import IDENT, STRING, tokens
from dray.gates import GateSet
from dray.lint.findings import Complaint
from dray.lint.object_facts import Ask
from dray.lint.rules import Severity
from dray.lint.selectors.cel_messages import in_words, type_words, with_article
from dray.values.quantity import Quantity
from dray.values.quantity_text import QuantityError

SHARING, LISTS = "DRAConsumableCapacity", "DRAListTypeAttributes"


def examined(asks: tuple[Ask, ...], gates: GateSet) -> tuple[tuple[Ask, ...], list[Complaint]]:
    """The asks of an object with what cannot be used marked, and what is wrong with it."""
    complaints: list[Complaint] = []
    marked = []
    for ask in asks:
        uses = []
        for use in ask.selectors:
            found = unusable(use.expression, gates)
            complaints += [replace(complaint, path=use.path) for complaint in found]
            uses.append(replace(use, usable=not found and _has_size(use.expression)))
        marked.append(replace(ask, selectors=tuple(uses)))
    return tuple(marked), complaints


def _has_size(expression: str) -> bool:
    """Whether there is an expression, and one that is short enough; validation says so when there is not."""
    return 0 < len(expression.encode()) <= MAX_EXPRESSION


def unusable(expression: str, gates: GateSet) -> tuple[Complaint, ...]:
    """Why a new selector cannot be used; nothing for one that can, or that is not there to be compiled."""
    if not _has_size(expression):
        return ()
    compiled = compile_selector(expression, stored=False, gates=gates)
    if isinstance(compiled, Selector):
        if compiled.is_too_complex:
            return (_too_costly(compiled.program),)
        return _failing_literals(expression)
    if compiled.compiling is None:
        return (_no_condition(expression, compiled.detail),)
    env = environment(sharing=gates.enabled(SHARING), lists=gates.enabled(LISTS))
    gate = _missing_gate(expression, gates)
    if gate:
        return (_behind_gate(compiled.compiling, env, gate),)
    return tuple(_broken(compiled.compiling, issue, env) for issue in compiled.compiling.issues)


def _missing_gate(expression: str, gates: GateSet) -> str:
    """The gate that would make the expression compile."""
    sharing, lists = gates.enabled(SHARING), gates.enabled(LISTS)
    for gate, env in (
        (SHARING, environment(sharing=True, lists=lists)),
        (LISTS, environment(sharing=sharing, lists=True)),
    ):
        if not gates.enabled(gate) and isinstance(env.compile(expression), Program):
            return gate
    return ""


def _behind_gate(fault: CompileFault, env: Env, gate: str) -> Complaint:
    said = in_words(fault.text, fault.issues[0], env)
    return Complaint(
        "selector-broken",
        "",
        f"does not compile: {said.message}; feature gate `{gate}` is off",
        expected=f"an expression without it, or gate `{gate}` on",
        hint=f"`--feature-gates {gate}=true` turns it on",
        inside=(fault.text, said.offset or 0),
    )


def _too_costly(program: Program) -> Complaint:
    bound = f"{program.cost:,}" if program.cost < 2**64 - 1 else "any amount"
    return Complaint(
        "selector-too-costly",
        "",
        f"may cost {bound}, and a selector at most {COST_LIMIT:,}",
        expected="an expression that is cheap, whatever a device holds",
        hint="loops inside loops and texts put together in loops cost most; compare attributes directly",
        inside=(program.text, 0),
    )


def _no_condition(expression: str, detail: str) -> Complaint:
    found = type_words(detail.rpartition("not ")[2])
    return Complaint(
        "selector-broken",
        "",
        f"its value is {with_article(found)}, and a selector must be true or false",
        expected="a condition, for example a comparison with `==`",
        inside=(expression, 0),
    )


def _broken(fault: CompileFault, issue: Issue, env: Env) -> Complaint:
    said = in_words(fault.text, issue, env)
    return Complaint(
        "selector-broken",
        "",
        f"does not compile: {said.message}",
        expected=said.expected,
        hint=said.hint,
        inside=(fault.text, said.offset or 0),
    )


# --- values that are written out and cannot be read ---

_READ: Mapping[str, str] = MappingProxyType(
    {
        "quantity": "a quantity, for example `10Gi` or `500m`",
        "semver": "a version of three numbers, for example `1.2.3`",
        "ip": "an address, for example `192.0.2.1`",
        "cidr": "a network, for example `192.0.2.0/24`",
        "url": "an address with a scheme, for example `https://example.com`",
    }
)


@lru_cache(maxsize=1024)
def _failing_literals(expression: str) -> tuple[Complaint, ...]:
    read, _ = tokens(expression)
    found: list[Complaint] = []
    for before, name, opening, text, closing in zip(
        [None, *read], read, read[1:], read[2:], read[3:], strict=False
    ):
        fits = name.kind == IDENT and name.text in _READ and (before is None or before.kind != ".")
        if fits and (opening.kind, text.kind, closing.kind) == ("(", STRING, ")"):
            found += _failing(expression, name.offset, closing.offset + 1, name.text)
    return tuple(found)


def _failing(expression: str, start: int, end: int, function: str) -> Iterator[Complaint]:
    written = expression[start:end]
    program = environment(sharing=True, lists=True).compile(written)
    result = program.evaluate({}) if isinstance(program, Program) else None
    if isinstance(result, EvalFault):
        why, hint = _why(function, written, str(result))
        yield Complaint(
            "selector-fails",
            "",
            f"`{written}` fails on every device: {why}",
            expected=_READ[function],
            hint=hint,
            severity=Severity.ERROR,
            inside=(expression, start),
        )


def _why(function: str, written: str, message: str) -> tuple[str, str]:
    """In words: what is wrong with a literal, and a hint."""
    text = written[written.index("(") + 1 : -1].strip()[1:-1]
    if function == "quantity":
        try:
            Quantity.parse(text)
        except QuantityError as refused:
            why, _, hint = refused.reason.partition("; ")
            return why, hint
    if function == "semver" and re.fullmatch(r"v?\d+(\.\d+)?(\.\d+)?", text):
        return message[:1].lower() + message[1:], f'`semver("{text}", true)` takes short versions'
    return message[:1].lower() + message[1:], ""
