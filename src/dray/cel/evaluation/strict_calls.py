"""Strict calls: all arguments are evaluated, the price is paid, then the function runs.

Theory of operation: a call has one form for each number of arguments. An error in an argument is the error of
the call, but the other argument of two still runs and the call still costs, as in cel-go; that is the slow
way, taken only after an error. What a call costs is charged before it runs, as far as that is known: nothing
expensive is done on credit.
"""

from __future__ import annotations

from typing import Final, NoReturn

from dray.cel.cost.call_costs import Price
from dray.cel.evaluation.dispatch import Run
from dray.cel.evaluation.frame import COST, UNSET, Frame, Step, placed, spend
from dray.cel.faults import CelError
from dray.cel.values import Value

_FLAT: Final = Price(1)


def strict(steps: tuple[Step, ...], run: Run, price: Price, offset: int) -> Step:
    """The step of a call with these arguments."""
    if len(steps) == 2 and price == _FLAT:
        return _two(steps[0], steps[1], run, offset)
    if len(steps) == 1:
        return _one(steps[0], run, price, offset)
    return _two_priced(steps, run, price, offset) if len(steps) == 2 else _many(steps, run, price, offset)


def _one(step: Step, run: Run, price: Price, offset: int) -> Step:
    def unary(frame: Frame) -> Value:
        try:
            args = (step(frame),)
        except CelError:
            frame[COST] += price.unpaid((None,))
            raise
        return _called(frame, args, run, price, offset)

    return unary


def _two(left: Step, right: Step, run: Run, offset: int) -> Step:
    """The usual case on its own: two arguments, a price of one."""

    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            fail_two(frame, error, (a, b), right, _FLAT)
        frame[COST] += 1
        try:
            return run(a, b)
        except CelError as error:
            raise placed(error, offset) from None

    return binary


def _two_priced(steps: tuple[Step, ...], run: Run, price: Price, offset: int) -> Step:
    left, right = steps

    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            fail_two(frame, error, (a, b), right, price)
        return _called(frame, (a, b), run, price, offset)

    return binary


def fail_two(frame: Frame, error: CelError, args: tuple[Value, Value], right: Step, price: Price) -> NoReturn:
    """An argument failed: the other one runs as well, and the call is charged, before the error goes on."""
    left, other = args
    if left is UNSET:
        left = None
        try:
            other = right(frame)
        except CelError:
            other = None
    else:
        other = None
    frame[COST] += price.unpaid((left, other))
    raise error


def _many(steps: tuple[Step, ...], run: Run, price: Price, offset: int) -> Step:
    """More than two arguments, or none; here an argument that fails ends the call, and it costs nothing."""

    def call(frame: Frame) -> Value:
        return _called(frame, tuple([step(frame) for step in steps]), run, price, offset)

    return call


def _called(frame: Frame, args: tuple[Value, ...], run: Run, price: Price, offset: int) -> Value:
    before, after = price.before, price.after
    frame[COST] += price.flat
    if before is not None:
        spend(frame, before(args, None))
    try:
        result = run(*args)
    except CelError as error:
        if after is not None:
            frame[COST] += after(args, None)
        raise placed(error, offset) from None
    if after is not None:
        spend(frame, after(args, result))
    return result
