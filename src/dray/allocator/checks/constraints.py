"""Rules across picks: devices that must share a value, and devices that must not.

Values are typed and a scalar is a set of one. *Match* holds while one value is common to all devices
picked so far: the fact is what is still common. *Distinct* holds while no two devices have a value in
common: the fact is what is taken. Both only ever get harder to meet.
"""

from __future__ import annotations

from typing import Any

from dray.allocator.partial_solution import Board
from dray.allocator.refusals import Conflict, Reason, Refusal
from dray.allocator.requests import Rule

Values = frozenset[tuple[str, Any]]


def refuse(board: Board, rule: Rule, values: Values) -> Refusal | None:
    """Whether a device with these values breaks the rule."""
    if not values:
        return Refusal(Reason.ATTRIBUTE_MISSING, rule.attribute)
    pinned: Values | None = board.facts.get(rule)
    if pinned is None or pinned.isdisjoint(values) is rule.distinct:
        return None
    return Refusal(Reason.CONSTRAINT, Conflict(rule.attribute, rule.distinct, values, pinned))


def take(board: Board, rule: Rule, values: Values) -> None:
    """Note what is common, or what is taken, from now on."""
    pinned: Values | None = board.facts.get(rule)
    if pinned is None:
        board.write(rule, values)
    else:
        board.write(rule, pinned | values if rule.distinct else pinned & values)
