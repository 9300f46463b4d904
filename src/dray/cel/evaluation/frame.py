"""The frame of a running expression, and the form of its steps.

Theory of operation: a planned expression is a tree of Python closures, each of which takes the frame and
returns a value or raises `CelError`. The frame is a list: the cost so far, the limit, then one slot for each
variable and for each name that a macro binds. The planner assigns the slots; there is no recursion in CEL, so
a slot is never needed twice at the same time.

The steps add up the cost as they run and compare it with the limit wherever a step can run many times or cost
much, and once more at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dray.cel.declarations import Overload
from dray.cel.faults import BudgetError, CelError
from dray.cel.syntax.ast import Node
from dray.cel.types import Type
from dray.cel.values import Value

Frame = list[Any]
Step = Callable[[Frame], Value]

COST: Final = 0
LIMIT: Final = 1
FIRST_SLOT: Final = 2

UNSET: Final = object()
"""The content of a slot before its value is computed."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A planned node. A constant one has its value already, and costs nothing."""

    run: Step
    is_constant: bool = False
    value: Value = None
    is_path: bool = False
    """Whether it is a name with fields and indices; those cost one less inside a conditional."""


def make_constant(value: Value) -> PlannedNode:
    """A node whose value is known."""
    return PlannedNode(lambda _: value, True, value)


class Planner(Protocol):
    """What the functions that build steps need of the planner."""

    def plan(self, node: Node) -> PlannedNode: ...

    def get_type(self, node: Node) -> Type: ...

    @property
    def is_static(self) -> Callable[[Node], bool]: ...

    def get_overloads(self, node: Node) -> tuple[Overload, ...]: ...

    def get_reachable_overloads(self, node: Node) -> tuple[Overload, ...]: ...

    def get_qualified_name(self, node: Node) -> str | None: ...

    def bind(self, name: str, source: Step | None = None) -> int: ...

    def unbind(self, name: str) -> None: ...


def spend(frame: Frame, cost: int) -> None:
    """Add to the cost, and stop when it exceeds the limit."""
    frame[COST] += cost
    if frame[COST] > frame[LIMIT]:
        raise BudgetError


def attach_offset(error: CelError, offset: int) -> CelError:
    """The error with the offset of the node, unless it has that of a deeper one."""
    if error.offset is None:
        error.offset = offset
    return error
