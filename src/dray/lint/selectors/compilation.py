"""Findings about selectors that cannot be used, whatever the devices are.

Theory of operation: a selector is compiled as a new one, under the chosen gates. `cel_messages` words the
issues of the compiler. A literal quantity or version that cannot be parsed does compile, and then fails on
every device; it is reported here, too.

Rules for this file: no device is involved. Findings carry no path; the caller has the path of the selector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from dray.api.devices.device_cel import (
    SELECTOR_COST_LIMIT,
    CompiledSelector,
    build_environment,
    compile_selector,
)
from dray.api.limits import EXPRESSION_BYTES
from dray.cel import CelProgram, CompileFault, Env, EvalFault
from dray.cel.source import ExpressionIssue
from dray.cel.syntax.lexer import IDENT, STRING, tokenize
from dray.cel.types import Type
from dray.gates import GateSet
from dray.lint.findings import FieldFinding
from dray.lint.object_facts import SelectorGroup
from dray.lint.rules import Severity
from dray.lint.selectors.cel_messages import add_type_article, describe_type, report_issue
from dray.values.quantity import Quantity
from dray.values.quantity_text import QuantityError

SHARING, LISTS = "DRAConsumableCapacity", "DRAListTypeAttributes"


def check_selector_groups(
    groups: tuple[SelectorGroup, ...], gates: GateSet
) -> tuple[tuple[SelectorGroup, ...], list[FieldFinding]]:
    """The selector groups of an object with unusable selectors marked, and the findings about those."""
    findings: list[FieldFinding] = []
    marked = []
    for group in groups:
        uses = []
        for use in group.selectors:
            found = find_compile_findings(use.expression, gates)
            findings += [replace(finding, path=use.path) for finding in found]
            uses.append(replace(use, usable=not found and _has_valid_size(use.expression)))
        marked.append(replace(group, selectors=tuple(uses)))
    return tuple(marked), findings


def _has_valid_size(expression: str) -> bool:
    """Whether there is an expression that is short enough; validation reports it otherwise."""
    return 0 < len(expression.encode()) <= EXPRESSION_BYTES


def find_compile_findings(expression: str, gates: GateSet) -> tuple[FieldFinding, ...]:
    """Why a new selector cannot be used; nothing for one that can, or that is missing or too long."""
    if not _has_valid_size(expression):
        return ()
    compiled = compile_selector(expression, stored=False, gates=gates)
    if isinstance(compiled, CompiledSelector):
        if compiled.is_too_complex:
            return (_report_too_costly(compiled.program),)
        return _find_failing_literals(expression)
    if compiled.compile_fault is None:
        assert compiled.result_type is not None
        return (_report_not_boolean(expression, compiled.result_type),)
    env = build_environment(sharing=gates.is_enabled(SHARING), lists=gates.is_enabled(LISTS))
    gate = _find_missing_gate(expression, gates)
    if gate:
        return (_report_gate_off(compiled.compile_fault, env, gate),)
    return tuple(
        _report_compile_error(compiled.compile_fault, issue, env) for issue in compiled.compile_fault.issues
    )


def _find_missing_gate(expression: str, gates: GateSet) -> str:
    """The gate that would make the expression compile."""
    sharing, lists = gates.is_enabled(SHARING), gates.is_enabled(LISTS)
    for gate, env in (
        (SHARING, build_environment(sharing=True, lists=lists)),
        (LISTS, build_environment(sharing=sharing, lists=True)),
    ):
        if not gates.is_enabled(gate) and isinstance(env.compile(expression), CelProgram):
            return gate
    return ""


def _report_gate_off(fault: CompileFault, env: Env, gate: str) -> FieldFinding:
    finding = _report_compile_error(fault, fault.issues[0], env)
    return replace(
        finding,
        message=f"{finding.message}; feature gate `{gate}` is off",
        expected=f"an expression without it, or gate `{gate}` on",
        hint=f"`--feature-gates {gate}=true` turns it on",
    )


def _report_too_costly(program: CelProgram) -> FieldFinding:
    bound = f"{program.cost:,}" if program.cost < 2**64 - 1 else "any amount"
    return FieldFinding(
        "selector-too-costly",
        "",
        f"may cost {bound}, and a selector at most {SELECTOR_COST_LIMIT:,}",
        expected="an expression that is cheap, whatever a device holds",
        hint="loops inside loops and texts put together in loops cost most; compare attributes directly",
        text_offset=(program.text, 0),
    )


def _report_not_boolean(expression: str, result_type: Type) -> FieldFinding:
    found = describe_type(result_type)
    return FieldFinding(
        "selector-broken",
        "",
        f"its value is {add_type_article(found)}, and a selector must be true or false",
        expected="a condition, for example a comparison with `==`",
        text_offset=(expression, 0),
    )


def _report_compile_error(fault: CompileFault, issue: ExpressionIssue, env: Env) -> FieldFinding:
    finding = report_issue(fault.text, issue, env)
    return replace(finding, message=f"does not compile: {finding.message}")


# --- literals that cannot be parsed ---

_EXPECTED_LITERALS: Mapping[str, str] = MappingProxyType(
    {
        "quantity": "a quantity, for example `10Gi` or `500m`",
        "semver": "a version of three numbers, for example `1.2.3`",
        "ip": "an address, for example `192.0.2.1`",
        "cidr": "a network, for example `192.0.2.0/24`",
        "url": "an address with a scheme, for example `https://example.com`",
    }
)


@lru_cache(maxsize=1024)
def _find_failing_literals(expression: str) -> tuple[FieldFinding, ...]:
    read, _ = tokenize(expression)
    found: list[FieldFinding] = []
    for before, name, opening, text, closing in zip(
        [None, *read], read, read[1:], read[2:], read[3:], strict=False
    ):
        fits = (
            name.kind == IDENT and name.text in _EXPECTED_LITERALS and (before is None or before.kind != ".")
        )
        if fits and (opening.kind, text.kind, closing.kind) == ("(", STRING, ")"):
            found += _check_literal(expression, name.offset, closing.offset + 1, name.text)
    return tuple(found)


def _check_literal(expression: str, start: int, end: int, function: str) -> Iterator[FieldFinding]:
    written = expression[start:end]
    program = build_environment(sharing=True, lists=True).compile(written)
    result = program.evaluate({}) if isinstance(program, CelProgram) else None
    if isinstance(result, EvalFault):
        why, hint = _explain_literal(function, written, str(result))
        yield FieldFinding(
            "selector-fails",
            "",
            f"`{written}` fails on every device: {why}",
            expected=_EXPECTED_LITERALS[function],
            hint=hint,
            severity=Severity.ERROR,
            text_offset=(expression, start),
        )


def _explain_literal(function: str, written: str, message: str) -> tuple[str, str]:
    """What is wrong with a literal, and a hint."""
    text = written[written.index("(") + 1 : -1].strip()[1:-1]
    if function == "quantity":
        try:
            Quantity.parse(text)
        except QuantityError as error:
            return error.problem, error.hint
    if function == "semver" and re.fullmatch(r"v?\d+(\.\d+)?(\.\d+)?", text):
        return message[:1].lower() + message[1:], f'`semver("{text}", true)` takes short versions'
    return message[:1].lower() + message[1:], ""
