"""Steps of strict calls: they evaluate all arguments, charge the cost, and run the function.

Theory of operation: a call has one form for each number of arguments. An error in an argument is the error of
the call, but the other argument of two is still evaluated and the call is still charged, as in cel-go; that
slow path runs only after an error. The cost is charged before the function runs, as far as it is known:
nothing expensive happens before it is paid for.
"""

from __future__ import annotations

from typing import Final, NoReturn

from dray.cel.cost.call_costs import CallCost
from dray.cel.evaluation.dispatch import Implementation
from dray.cel.evaluation.frame import COST, UNSET, Frame, Step, attach_offset, spend
from dray.cel.faults import CelError
from dray.cel.values import Value

_FLAT_COST: Final = CallCost(1)


def build_strict_step(
    steps: tuple[Step, ...], implementation: Implementation, call_cost: CallCost, offset: int
) -> Step:
    """The step of a call with these arguments."""
    if len(steps) == 2 and call_cost == _FLAT_COST:
        return _build_flat_binary_step(steps[0], steps[1], implementation, offset)
    if len(steps) == 1:
        return _build_unary_step(steps[0], implementation, call_cost, offset)
    return (
        _build_binary_step(steps, implementation, call_cost, offset)
        if len(steps) == 2
        else _build_variadic_step(steps, implementation, call_cost, offset)
    )


def _build_unary_step(step: Step, implementation: Implementation, call_cost: CallCost, offset: int) -> Step:
    def unary(frame: Frame) -> Value:
        try:
            args = (step(frame),)
        except CelError:
            frame[COST] += call_cost.compute_failure_cost((None,))
            raise
        return _run_call(frame, args, implementation, call_cost, offset)

    return unary


def _build_flat_binary_step(left: Step, right: Step, implementation: Implementation, offset: int) -> Step:
    """The fast path for two arguments and a cost of one."""

    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            fail_binary_call(frame, error, (a, b), right, _FLAT_COST)
        frame[COST] += 1
        try:
            return implementation(a, b)
        except CelError as error:
            raise attach_offset(error, offset) from None

    return binary


def _build_binary_step(
    steps: tuple[Step, ...], implementation: Implementation, call_cost: CallCost, offset: int
) -> Step:
    left, right = steps

    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            fail_binary_call(frame, error, (a, b), right, call_cost)
        return _run_call(frame, (a, b), implementation, call_cost, offset)

    return binary


def fail_binary_call(
    frame: Frame, error: CelError, args: tuple[Value, Value], right: Step, call_cost: CallCost
) -> NoReturn:
    """Evaluate the other argument and charge the call before raising the error of one argument."""
    left, other = args
    if left is UNSET:
        left = None
        try:
            other = right(frame)
        except CelError:
            other = None
    else:
        other = None
    frame[COST] += call_cost.compute_failure_cost((left, other))
    raise error


def _build_variadic_step(
    steps: tuple[Step, ...], implementation: Implementation, call_cost: CallCost, offset: int
) -> Step:
    """More than two arguments, or none; here an argument that fails ends the call free of charge."""

    def call(frame: Frame) -> Value:
        return _run_call(frame, tuple([step(frame) for step in steps]), implementation, call_cost, offset)

    return call


def _run_call(
    frame: Frame, args: tuple[Value, ...], implementation: Implementation, call_cost: CallCost, offset: int
) -> Value:
    before, after = call_cost.before, call_cost.after
    frame[COST] += call_cost.flat
    if before is not None:
        spend(frame, before(args, None))
    try:
        result = implementation(*args)
    except CelError as error:
        if after is not None:
            frame[COST] += after(args, None)
        raise attach_offset(error, offset) from None
    if after is not None:
        spend(frame, after(args, result))
    return result
