"""Environments and programs: the door of this package.

An `Env` is declared once: variables with their types and extents, structs with their fields, libraries of
functions. It compiles text to a `CelProgram`, or to a `CompileFault`. A program can be evaluated any number
of times, from any thread; it gives a value, or an `EvalFault`. Neither way does an exception come out.

Rules for this file: no stage of compiling does its work here; this is only the order they run in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dray.cel.checking.checker import Scope, check
from dray.cel.checking.literal_checks import find_literal_issues
from dray.cel.checking.unification import ComplexityError
from dray.cel.cost.estimator import estimate_worst_cost
from dray.cel.cost.size_bounds import SizeBound
from dray.cel.declarations import Function, collect_functions
from dray.cel.evaluation.frame import COST, LIMIT, UNSET, Frame
from dray.cel.evaluation.planner import ExecutionPlan, plan_expression
from dray.cel.faults import (
    BUDGET_MESSAGE,
    BudgetError,
    CelError,
    CompileFault,
    CompileStage,
    EvalFault,
    FaultKind,
    RejectedError,
)
from dray.cel.source import ExpressionIssue
from dray.cel.syntax.parser import parse
from dray.cel.syntax.variable_reads import VariableReads
from dray.cel.types import Type
from dray.cel.values import Value

COST_LIMIT: Final = 1_000_000
"""What one evaluation may cost unless the caller says otherwise."""
_MAX_SHORT_TEXT: Final = 512
"""Characters of an expression that many are remembered of: programs take a hundred times as much."""
_SHORT_REMEMBERED, _LONG_REMEMBERED = 512, 32


@dataclass(frozen=True, slots=True)
class Variable:
    """A name the caller will give a value: its type, and how large it can be."""

    name: str
    type: Type
    size_bound: SizeBound | None = None


@dataclass(frozen=True, slots=True)
class MeasuredResult:
    """A value or fault, and what it cost to get there."""

    result: Value | EvalFault
    cost: int


class Env:
    """What expressions may mention. Compiled programs are remembered."""

    def __init__(
        self,
        variables: Iterable[Variable] = (),
        libraries: Iterable[Iterable[Function]] = (),
        structs: Mapping[str, Mapping[str, Type]] | None = None,
    ) -> None:
        declared = tuple(variables)
        self.scope: Final = Scope(
            {one.name: one.type for one in declared}, collect_functions(libraries), structs or {}
        )
        self.size_bounds: Final = {one.name: one.size_bound for one in declared if one.size_bound is not None}
        self._compile_short: Callable[[str], CelProgram | CompileFault]
        self._compile_short, self._compile_long = (
            lru_cache(maxsize=most)(self._compile) for most in (_SHORT_REMEMBERED, _LONG_REMEMBERED)
        )

    def compile(self, text: str) -> CelProgram | CompileFault:
        """Read, check and plan an expression."""
        return self._compile_short(text) if len(text) <= _MAX_SHORT_TEXT else self._compile_long(text)

    def _compile(self, text: str) -> CelProgram | CompileFault:
        try:
            return self._build_program(text)
        except RejectedError as rejected:
            return CompileFault(text, rejected.issues, rejected.stage)
        except (ComplexityError, RecursionError):
            return CompileFault(text, (ExpressionIssue(0, "the expression is too complex"),))
        except Exception as broken:
            # Whoever compiles text from outside must get an answer, also when it is our mistake.
            return CompileFault(
                text, (ExpressionIssue(0, f"internal error: {broken!r}"),), CompileStage.INTERNAL
            )

    def _build_program(self, text: str) -> CelProgram:
        root = parse(text)
        checked, issues = check(root, self.scope)
        if issues:
            raise RejectedError(tuple(issues))
        issues = find_literal_issues(root, checked)
        if issues:
            raise RejectedError(tuple(issues))
        return CelProgram(
            text,
            checked.types[root.id],
            plan_expression(root, checked, self.scope.functions),
            lambda: estimate_worst_cost(root, checked, self.size_bounds),
            VariableReads(root, checked.qualified),
        )


class CelProgram:
    """An expression that can be evaluated. `type` is the type of its value, `reading` what it looks at."""

    __slots__ = ("_cost", "_estimate", "_frame", "_run", "_slots", "reading", "text", "type")

    def __init__(
        self, text: str, type: Type, plan: ExecutionPlan, estimate: Callable[[], int], reading: VariableReads
    ) -> None:
        self.text = text
        self.type = type
        self._run = plan.run
        self._slots = tuple(plan.slots.items())
        self._frame: Frame = [0, COST_LIMIT, *[UNSET] * (plan.width - 2)]
        self._estimate = estimate
        self._cost: int | None = None
        self.reading = reading

    @property
    def cost(self) -> int:
        """The most an evaluation can cost; 2^64-1 when there is no bound. Computed when first asked for."""
        if self._cost is None:
            self._cost = self._estimate()
        return self._cost

    def evaluate(self, bindings: Mapping[str, Value], cost_limit: int = COST_LIMIT) -> Value | EvalFault:
        """The value of the expression for these variables, or why there is none."""
        frame = self._frame.copy()
        frame[LIMIT] = cost_limit
        missing = self._bind(frame, bindings)
        return missing or self._run_frame(frame, cost_limit)

    def evaluate_one(self, value: Value) -> Value | EvalFault:
        """Like `evaluate`, for a program with one variable: this is its value."""
        frame = self._frame.copy()
        for _name, slot in self._slots:
            frame[slot] = value
        return self._run_frame(frame, COST_LIMIT)

    def measure(self, bindings: Mapping[str, Value], cost_limit: int = COST_LIMIT) -> MeasuredResult:
        """Like `evaluate`, and what it cost."""
        frame = self._frame.copy()
        frame[LIMIT] = cost_limit
        missing = self._bind(frame, bindings)
        result = missing or self._run_frame(frame, cost_limit)
        # Steps are charged in bundles, so how far the cost went beyond the limit says nothing.
        return MeasuredResult(result, min(frame[COST], cost_limit + 1))

    def _bind(self, frame: Frame, bindings: Mapping[str, Value]) -> EvalFault | None:
        for name, slot in self._slots:
            if name not in bindings:
                return EvalFault(f"no such attribute(s): {name}", FaultKind.ERROR, self.text)
            frame[slot] = bindings[name]
        return None

    def _run_frame(self, frame: Frame, cost_limit: int) -> Value | EvalFault:
        try:
            value = self._run(frame)
        except CelError as error:
            return EvalFault(error.message, FaultKind.ERROR, self.text, error.offset)
        except BudgetError:
            return self._make_budget_fault()
        except Exception as broken:
            # An evaluation that is our mistake must not take the caller down with it.
            return EvalFault(f"internal error: {broken!r}", FaultKind.INTERNAL, self.text)
        return self._make_budget_fault() if frame[COST] > cost_limit else value

    def _make_budget_fault(self) -> EvalFault:
        return EvalFault(BUDGET_MESSAGE, FaultKind.BUDGET, self.text)
