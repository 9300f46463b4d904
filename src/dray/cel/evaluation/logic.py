"""Steps of the operators that decide what is evaluated: `&&`, `||`, `?:`, `orValue`, `or`.

Theory of operation: one side of `&&` or `||` may decide the result even when the other side fails: an error
counts only when no side decides. A chain of one operator is one step. The fast path assumes no errors; only
after an error, or a value that is no boolean, are all terms evaluated.
"""

from __future__ import annotations

from dray.cel.evaluation.frame import COST, Frame, PlannedNode, Planner, Step, attach_offset, make_constant
from dray.cel.faults import CelError, make_overload_error
from dray.cel.syntax.ast import FunctionCall, Node
from dray.cel.values import NONE, OptionalValue, Value, join_type_names


def plan_chain(planner: Planner, node: FunctionCall) -> PlannedNode:
    """The plan of `a && b && …` or `a || b || …`."""
    deciding = node.function == "_||_"
    plans = [planner.plan(term) for term in _flatten_terms(node, node.function)]
    kept: list[Step] = []
    for planned in plans:
        if planned.is_constant and planned.value is deciding:
            # The terms after it cannot change the result; those before it may still cost something.
            kept.append(planned.run)
            break
        kept.append(planned.run)
    if len(kept) == 1 and plans[0].is_constant:
        return make_constant(deciding)
    return PlannedNode(_build_chain_step(tuple(kept), deciding, node.offset))


def _flatten_terms(node: Node, function: str) -> list[Node]:
    terms: list[Node] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, FunctionCall) and one.function == function:
            waiting += reversed(one.args)
        else:
            terms.append(one)
    return terms


def _build_chain_step(terms: tuple[Step, ...], short_circuit: bool, offset: int) -> Step:
    other = not short_circuit

    def chain(frame: Frame) -> bool:
        done = 0
        try:
            for term in terms:
                value: object = term(frame)
                done += 1
                if value is short_circuit:
                    return short_circuit
                if value is not other:
                    return _evaluate_after_error(
                        frame, terms[done:], short_circuit, attach_offset(make_overload_error(), offset)
                    )
        except CelError as error:
            return _evaluate_after_error(frame, terms[done + 1 :], short_circuit, error)
        return other

    return chain


def _evaluate_after_error(
    frame: Frame, terms: tuple[Step, ...], short_circuit: bool, error: CelError
) -> bool:
    """After an error: the remaining terms may decide the result, else the first error is the result."""
    for term in terms:
        try:
            value: object = term(frame)
        except CelError:
            continue
        if value is short_circuit:
            return short_circuit
    raise error


def plan_conditional(planner: Planner, node: FunctionCall) -> PlannedNode:
    """The plan of `a ? b : c`."""
    condition, then, otherwise = (planner.plan(arg) for arg in node.args)
    if condition.is_constant and type(condition.value) is bool:
        return _discount_path(then if condition.value else otherwise)
    test, yes, no, offset = (
        condition.run,
        _discount_path(then).run,
        _discount_path(otherwise).run,
        node.offset,
    )

    def conditional(frame: Frame) -> Value:
        value = test(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise attach_offset(make_overload_error(), offset)

    return PlannedNode(conditional)


def _discount_path(planned: PlannedNode) -> PlannedNode:
    """A branch; a path costs one less here than elsewhere, as cel-go does not count where it starts."""
    if not planned.is_path:
        return planned
    run = planned.run

    def cheaper(frame: Frame) -> Value:
        frame[COST] -= 1
        return run(frame)

    return PlannedNode(cheaper)


def plan_alternative(planner: Planner, node: FunctionCall) -> PlannedNode:
    """The plan of `a.orValue(b)` and `a.or(b)`: the alternative is evaluated only when it is needed."""
    assert node.target is not None
    first, second = planner.plan(node.target).run, planner.plan(node.args[0]).run
    unwrap, name, offset = node.function == "orValue", node.function, node.offset

    def alternative(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not OptionalValue:
            raise attach_offset(make_overload_error(name, join_type_names(value)), offset)
        if value is not NONE:
            return value.value if unwrap else value
        other = second(frame)
        if not unwrap and type(other) is not OptionalValue:
            raise attach_offset(make_overload_error(name, join_type_names(value, other)), offset)
        return other

    return PlannedNode(alternative)
