"""Environments and programs: the public entry points of this package.

An `Env` is declared once: variables with their types and size bounds, structs with their fields, libraries of
functions. It compiles text to a `CelProgram` or a `CompileFault`. A program can be evaluated any number of
times, from any thread; it returns a value or an `EvalFault`. Neither raises an exception.

Rules for this file: no stage of compilation is implemented here; this is only the order they run in.
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
"""The cost limit of one evaluation unless the caller passes another."""
_MAX_SHORT_TEXT: Final = 512
"""Longer expressions get a smaller cache: a program takes a hundred times the memory of its text."""
_SHORT_CACHE_SIZE, _LONG_CACHE_SIZE = 512, 32


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that the caller binds: its type and its size bound."""

    name: str
    type: Type
    size_bound: SizeBound | None = None


@dataclass(frozen=True, slots=True)
class MeasuredResult:
    """A value or fault, and the cost of the evaluation."""

    result: Value | EvalFault
    cost: int


class Env:
    """What expressions may use. Compiled programs are cached."""

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
            lru_cache(maxsize=most)(self._compile) for most in (_SHORT_CACHE_SIZE, _LONG_CACHE_SIZE)
        )

    def compile(self, text: str) -> CelProgram | CompileFault:
        """Parse, check and plan an expression."""
        return self._compile_short(text) if len(text) <= _MAX_SHORT_TEXT else self._compile_long(text)

    def _compile(self, text: str) -> CelProgram | CompileFault:
        try:
            return self._build_program(text)
        except RejectedError as rejected:
            return CompileFault(text, rejected.issues, rejected.stage)
        except (ComplexityError, RecursionError):
            return CompileFault(text, (ExpressionIssue(0, "the expression is too complex"),))
        except Exception as broken:
            # Callers compile text from outside: they need an answer even for a bug in this package.
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
    """An expression that can be evaluated; `type` is the type of its value."""

    __slots__ = ("_cost", "_estimate", "_frame", "_run", "_slots", "text", "type", "variable_reads")

    def __init__(
        self,
        text: str,
        type: Type,
        plan: ExecutionPlan,
        estimate: Callable[[], int],
        variable_reads: VariableReads,
    ) -> None:
        self.text = text
        self.type = type
        self._run = plan.run
        self._slots = tuple(plan.slots.items())
        self._frame: Frame = [0, COST_LIMIT, *[UNSET] * (plan.frame_size - 2)]
        self._estimate = estimate
        self._cost: int | None = None
        self.variable_reads = variable_reads

    @property
    def cost(self) -> int:
        """The most an evaluation can cost; 2^64-1 when there is no bound. Computed on first use."""
        if self._cost is None:
            self._cost = self._estimate()
        return self._cost

    def evaluate(self, bindings: Mapping[str, Value], cost_limit: int = COST_LIMIT) -> Value | EvalFault:
        """The value of the expression for these variables, or the fault."""
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
            return EvalFault(error.message, FaultKind.ERROR, self.text, error.offset, error.reason)
        except BudgetError:
            return self._make_budget_fault()
        except Exception as broken:
            # A bug in this package must not take the caller down with it.
            return EvalFault(f"internal error: {broken!r}", FaultKind.INTERNAL, self.text)
        return self._make_budget_fault() if frame[COST] > cost_limit else value

    def _make_budget_fault(self) -> EvalFault:
        return EvalFault(BUDGET_MESSAGE, FaultKind.BUDGET, self.text)
