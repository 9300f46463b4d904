"""The operators that decide what is evaluated: `&&`, `||`, `?:`, `orValue`, `or`.

Theory of operation: `&&` and `||` may be answered by one side alone, even when the other side fails: an error
counts only when no side settles the matter. A chain of one operator is one step. The usual case runs straight
through; only after an error, or a value that is no boolean, does the careful version look at all terms.
"""

from __future__ import annotations

from dray.cel.evaluation.frame import COST, Frame, Plan, Planner, Step, constant, placed
from dray.cel.faults import CelError, no_such_overload
from dray.cel.syntax.ast import Call, Node
from dray.cel.values import NONE, Optional, Value, type_names


def plan_chain(planner: Planner, node: Call) -> Plan:
    """The plan of `a && b && …` or `a || b || …`."""
    settling = node.function == "_||_"
    plans = [planner.plan(term) for term in _terms(node, node.function)]
    kept: list[Step] = []
    for planned in plans:
        if planned.known and planned.value is settling:
            # What comes behind can change nothing; what stands before may still cost something.
            kept.append(planned.run)
            break
        kept.append(planned.run)
    if len(kept) == 1 and plans[0].known:
        return constant(settling)
    return Plan(_chain(tuple(kept), settling, node.offset))


def _terms(node: Node, function: str) -> list[Node]:
    terms: list[Node] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Call) and one.function == function:
            waiting += reversed(one.args)
        else:
            terms.append(one)
    return terms


def _chain(terms: tuple[Step, ...], settling: bool, offset: int) -> Step:
    other = not settling

    def chain(frame: Frame) -> bool:
        done = 0
        try:
            for term in terms:
                value: object = term(frame)
                done += 1
                if value is settling:
                    return settling
                if value is not other:
                    return _careful(frame, terms[done:], settling, placed(no_such_overload(), offset))
        except CelError as error:
            return _careful(frame, terms[done + 1 :], settling, error)
        return other

    return chain


def _careful(frame: Frame, terms: tuple[Step, ...], settling: bool, error: CelError) -> bool:
    """After an error: the remaining terms may settle the matter, else the first error stands."""
    for term in terms:
        try:
            value: object = term(frame)
        except CelError:
            continue
        if value is settling:
            return settling
    raise error


def plan_conditional(planner: Planner, node: Call) -> Plan:
    """The plan of `a ? b : c`."""
    condition, then, otherwise = (planner.plan(arg) for arg in node.args)
    if condition.known and type(condition.value) is bool:
        return _branch(then if condition.value else otherwise)
    test, yes, no, offset = condition.run, _branch(then).run, _branch(otherwise).run, node.offset

    def conditional(frame: Frame) -> Value:
        value = test(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise placed(no_such_overload(), offset)

    return Plan(conditional)


def _branch(planned: Plan) -> Plan:
    """A branch; a path costs one less here than elsewhere, as cel-go does not count where it starts."""
    if not planned.is_path:
        return planned
    run = planned.run

    def cheaper(frame: Frame) -> Value:
        frame[COST] -= 1
        return run(frame)

    return Plan(cheaper)


def plan_alternative(planner: Planner, node: Call) -> Plan:
    """The plan of `a.orValue(b)` and `a.or(b)`: the alternative is evaluated only when it is needed."""
    assert node.target is not None
    first, second = planner.plan(node.target).run, planner.plan(node.args[0]).run
    unwrap, name, offset = node.function == "orValue", node.function, node.offset

    def alternative(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not Optional:
            raise placed(no_such_overload(name, type_names(value)), offset)
        if value is not NONE:
            return value.value if unwrap else value
        other = second(frame)
        if not unwrap and type(other) is not Optional:
            raise placed(no_such_overload(name, type_names(value, other)), offset)
        return other

    return Plan(alternative)
