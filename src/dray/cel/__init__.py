"""The Common Expression Language: an environment compiles an expression, a program evaluates it with a
budget.

The package knows neither devices nor feature gates: whoever builds an `Env` declares the variables, their
types and the functions. Text that does not compile gives a `CompileFault` and an evaluation that fails gives
an `EvalFault`, both values with a position in the source. `dray.api` and every package above it may import
this package.
"""

from __future__ import annotations

from dray.cel.environment import CelProgram, Env, MeasuredResult, Variable
from dray.cel.faults import CompileFault, CompileStage, ErrorReason, EvalFault, FaultKind
from dray.cel.syntax.variable_reads import PathRead

__all__ = [
    "CelProgram",
    "CompileFault",
    "CompileStage",
    "Env",
    "ErrorReason",
    "EvalFault",
    "FaultKind",
    "MeasuredResult",
    "PathRead",
    "Variable",
]
