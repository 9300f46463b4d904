"""Match conditions: CEL expressions that decide whether a webhook is called for a request.

    request      the review without the object: `request.operation`, `request.userInfo.username`, ...
    object       the object as it would be stored, null when it is deleted
    oldObject    the object as it is stored, null when it is created

Theory of operation: the types of objects are known only at run time, so all three variables are of unknown
type, and an expression that reads an absent field fails; `has(...)` tests for it. One condition that is false
is enough for the webhook not to be called, also when another one fails; a failure counts only when all others
are true. All conditions of a webhook share a cost budget, because clients write the objects that the
conditions evaluate, and all other requests wait meanwhile.

Rules for this file: there is no `authorizer`; an expression that names it does not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from dray.api.admission.review import InvalidAdmissionResponse
from dray.api.admission.webhook_configuration import MatchCondition
from dray.cel import CelProgram, CompileFault, Env, EvalFault, Variable
from dray.cel import types as t
from dray.cel.library import STANDARD_LIBRARIES
from dray.cel.values import Value

MATCH_COST_LIMIT: Final = 100_000
"""What the conditions of a webhook may cost together when evaluated: some hundredths of a second."""
_VARIABLES: Final = ("object", "oldObject", "request")
_INT64: Final = 2**63

ConditionBindings = Mapping[str, Value]


@lru_cache(maxsize=1)
def _build_environment() -> Env:
    return Env(tuple(Variable(name, t.DYN) for name in _VARIABLES), STANDARD_LIBRARIES)


def compile_condition(expression: str) -> CelProgram | str:
    """Compile an expression; the text is why it cannot be used."""
    program = _build_environment().compile(expression)
    if isinstance(program, CompileFault):
        return f"compilation failed: {program}"
    if program.type not in (t.BOOL, t.DYN):
        return f"must evaluate to bool, not {program.type}"
    return program


def evaluate_conditions(
    conditions: Iterable[MatchCondition], bindings: Callable[[], ConditionBindings]
) -> bool | InvalidAdmissionResponse:
    """Whether all conditions are true, or why that cannot be decided."""
    failed: InvalidAdmissionResponse | None = None
    given: ConditionBindings | None = None
    remaining = MATCH_COST_LIMIT
    for condition in conditions:
        given = bindings() if given is None else given
        answer, cost = _evaluate_condition(condition, given, remaining)
        remaining = max(0, remaining - cost)
        if answer is False:
            return False
        if isinstance(answer, InvalidAdmissionResponse):
            failed = failed or answer
    return failed or True


def bind_variables(request: Mapping[str, Any], new: Any, old: Any) -> ConditionBindings:
    """Convert documents to the variables of expressions."""
    about = {name: value for name, value in request.items() if name not in _VARIABLES}
    return {"request": _to_cel_value(about), "object": _to_cel_value(new), "oldObject": _to_cel_value(old)}


def _evaluate_condition(
    condition: MatchCondition, given: ConditionBindings, budget: int
) -> tuple[bool | InvalidAdmissionResponse, int]:
    """Evaluate one condition; returns the result and its cost."""
    program, what = compile_condition(condition.expression), f"match condition `{condition.name}`"
    if isinstance(program, str):
        return InvalidAdmissionResponse(f"{what}: {program}"), 0
    measured = program.measure(given, budget)
    result = measured.result
    if result is True or result is False:
        return bool(result), measured.cost
    why = f": {result.message}" if isinstance(result, EvalFault) else " is neither true nor false"
    return InvalidAdmissionResponse(f"{what}{why}"), measured.cost


def _to_cel_value(document: Any) -> Value:
    """Convert a document to a CEL value."""
    if isinstance(document, Mapping):
        return {str(name): _to_cel_value(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return tuple(_to_cel_value(value) for value in document)
    if isinstance(document, Decimal) or (isinstance(document, int) and not -_INT64 <= document < _INT64):
        return float(document)
    found: Value = document
    return found
