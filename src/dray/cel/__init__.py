"""The Common Expression Language: text is compiled, checked against declarations, and run with a budget.

Nothing here knows what a device is or what a feature gate switches: variables, their types and the functions
that exist are declared by whoever builds an `Env`. Broken text gives a `CompileFault` and an evaluation that
fails an `EvalFault`, both values with a place in the source; `api` and everything above it may import this
package.
"""

from __future__ import annotations

from dray.cel.environment import CelProgram, Env, MeasuredResult, Variable
from dray.cel.faults import CompileFault, CompileStage, EvalFault, FaultKind
from dray.cel.syntax.variable_reads import PathRead

__all__ = [
    "CelProgram",
    "CompileFault",
    "CompileStage",
    "Env",
    "EvalFault",
    "FaultKind",
    "MeasuredResult",
    "PathRead",
    "Variable",
]
