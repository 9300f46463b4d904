"""What a running expression keeps, and the shape of its steps.

Theory of operation: a planned expression is a tree of Python closures, each of which takes the frame and
returns a value or raises `CelError`. The frame is a list: the cost so far, the limit, then one slot for each
variable and for each name that a macro binds. Slots are handed out when the expression is planned; there is
no recursion in CEL, so a slot is never needed twice at the same time.

The cost is added up as the steps run and compared with the limit wherever a step can run many times or cost
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
"""What a slot holds before its value was asked for, and a variable before it was computed."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A planned part. A known one has its value already, and costs nothing."""

    run: Step
    is_constant: bool = False
    value: Value = None
    is_path: bool = False
    """Whether it is a name with fields and indices; those cost one less inside a conditional."""


def make_constant(value: Value) -> PlannedNode:
    """A part whose value is known."""
    return PlannedNode(lambda _: value, True, value)


class Planner(Protocol):
    """What the makers of steps need of the planner."""

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
    """Add to the cost, and stop when that is more than was allowed."""
    frame[COST] += cost
    if frame[COST] > frame[LIMIT]:
        raise BudgetError


def attach_offset(error: CelError, offset: int) -> CelError:
    """The error with the place where it happened, unless it knows a deeper one."""
    if error.offset is None:
        error.offset = offset
    return error
