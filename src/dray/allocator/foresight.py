"""Counting ahead: branches that cannot succeed are left now, not ten levels deeper.

Theory of operation: given the board and the wants that are still open, cheap counts bound what is
possible. A want needs enough candidates; exclusive candidates serve one want each (Hall's condition on
the sets that wants draw from); a claim holds only so many; a match constraint needs one value that every
open want it covers can still find; a distinct constraint needs enough values; counters need what even the
most modest candidates consume. Every bound is a relaxation: it never calls a branch hopeless that has a
solution, so the first solution stays the first. What a bound excludes (`allowed`) only skips candidates that
would fail.

Also here: which candidates are *interchangeable* for this ask, so that when one failed at a point the
others need not be tried there, and what makes two places of the walk the same (`image`).

Rules for this file: nothing here decides what is taken; leaving it out changes time, not answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.allocator.beats import Point
from dray.allocator.board import USED, Board
from dray.allocator.options import options_of
from dray.allocator.reasons import Conflict, Reason, Refusal, Short
from dray.allocator.stock import Shape
from dray.allocator.wants import MAX_RESULTS, Ask, Choice, Rule, Want


class Need:
    """What is still open of one choice: how many, out of which candidates, under which rules."""

    __slots__ = ("count", "exclusive", "mask", "name", "rules")

    def __init__(self, name: str, count: int, mask: int, exclusive: bool, rules: tuple[Rule, ...]) -> None:
        self.name = name
        self.count = count
        self.mask = mask
        self.exclusive = exclusive
        self.rules = rules


class Demand:
    """What a choice asks at the least, whichever of some alternatives it takes; before anything is taken."""

    __slots__ = ("admin", "claim", "count", "exclusive", "mask", "name", "rules")

    def __init__(self, choice: Choice, wants: tuple[Want, ...], shape: Shape) -> None:
        options = [options_of(shape, want) for want in wants]
        self.claim = choice.claim
        self.name = wants[0].name if len(wants) == 1 else choice.request
        self.mask = 0
        for option in options:
            self.mask |= option.mask
        self.count = min(
            option.suiting.bit_count() if want.wants_all else want.count
            for want, option in zip(wants, options, strict=True)
        )
        self.admin = any(want.admin for want in wants)
        self.exclusive = not self.admin and not self.mask & shape.shareable
        self.rules = tuple(rule for rule in wants[0].rules if all(rule in want.rules for want in wants))

    def need(self, board: Board, taken: int) -> Need:
        """What of it is possible now."""
        blocked = board.facts.get(("claim", self.claim), 0) if self.admin else taken
        return Need(self.name, self.count, self.mask & ~blocked, self.exclusive, self.rules)


class Foresight:
    """Bounds for one ask on one shape."""

    def __init__(self, ask: Ask, shape: Shape) -> None:
        self._shape = shape
        self._options = {want: options_of(shape, want) for choice in ask.choices for want in choice.wants}
        for options in self._options.values():
            options.complete()
        self.usable = not any(
            # What somebody has is never reached, unless by who wants all or looks in from outside.
            options.faulty & (-1 if want.wants_all or want.admin else ~shape.taken)
            for want, options in self._options.items()
        )
        self._twins = self._interchangeable(ask)
        self._kinds = set(self._twins)
        self._later = [Demand(choice, choice.wants, shape) for choice in ask.choices]
        self._least_after = [
            sum(later.count for later in self._later[choice.index + 1 :] if later.claim == choice.claim)
            for choice in ask.choices
        ]
        self._single = {want: Demand(c, (want,), shape) for c in ask.choices for want in c.wants}
        self._counted = any(shape.counters)

    # --- who is like whom ---

    def _interchangeable(self, ask: Ask) -> list[int]:
        """For each candidate the mask of those no remaining search can tell from it."""
        masks = [options.mask for options in set(self._options.values())]
        masks += [self._options[want].suiting for want in self._options if want.wants_all]
        attributes = {rule.attribute for rule in ask.rules}
        shape = self._shape
        groups: dict[Any, int] = {}
        keys = []
        for i, content in enumerate(shape.contents):
            key = (
                shape.taken >> i & 1,
                i if i in shape.left else -1,
                (shape.pool_of[i], content.counters) if content.counters else None,
                *[mask >> i & 1 for mask in masks],
                *[content.values(attribute) for attribute in attributes],
            )
            keys.append(key)
            groups[key] = groups.get(key, 0) | 1 << i
        return [groups[key] for key in keys]

    def twins(self, candidate: int) -> int:
        """The candidates interchangeable with this one, itself among them."""
        return self._twins[candidate]

    def image(self, choice: Choice, board: Board) -> Any:
        """What the rest of the walk depends on; taken devices count by kind, not by name."""
        used = board.facts.get(USED, 0)
        counts = frozenset((twins, (used & twins).bit_count()) for twins in self._kinds if used & twins)
        others = frozenset(item for item in board.facts.items() if item[0] != USED)
        return (choice.index, counts, others)

    # --- what is still possible ---

    def look(self, board: Board, point: Point, cursor: int, before: int) -> tuple[int, Refusal | None]:
        """The candidates worth trying at a point, and what is lacking when there is no hope at all.

        `before` is how many devices the claim of the point has already.
        """
        want = point.want
        taken = self._shape.taken | board.facts.get(USED, 0)
        here = self._single[want].need(board, taken)
        here.count -= point.nth
        here.mask = here.mask >> cursor << cursor
        together = before + here.count + self._least_after[point.choice.index]
        if together > MAX_RESULTS:
            return 0, Refusal(Reason.TOO_MANY_DEVICES, Short("", together, MAX_RESULTS))
        needs = [here, *[demand.need(board, taken) for demand in self._later[point.choice.index + 1 :]]]
        for lacking in self._bounds(board, needs):
            if lacking is not None:
                return 0, lacking
        return here.mask, None

    def _bounds(self, board: Board, needs: list[Need]) -> Iterator[Refusal | None]:
        members: dict[Rule, list[Need]] = {}
        for need in needs:
            for rule in need.rules if need.count else ():
                members.setdefault(rule, []).append(need)
        for rule, covered in members.items():
            yield self._distinct(board, rule, covered) if rule.distinct else self._match(board, rule, covered)
        yield _enough(needs)
        if self._counted:
            yield self._counters(board, needs)

    def _match(self, board: Board, rule: Rule, covered: list[Need]) -> Refusal | None:
        _having, by_value = self._shape.values(rule.attribute)
        pinned = board.facts.get(rule)
        viable = 0
        for value in by_value if pinned is None else pinned:
            mask = by_value[value]
            for need in covered:
                if (need.mask & mask).bit_count() < need.count:
                    break
            else:
                if len(covered) == 1 or _jointly(covered, mask) is None:
                    viable |= mask
        for need in covered:
            need.mask &= viable
        if viable:
            return None
        return Refusal(Reason.CONSTRAINT, Conflict(rule.attribute, False, frozenset(), pinned or frozenset()))

    def _distinct(self, board: Board, rule: Rule, covered: list[Need]) -> Refusal | None:
        having, by_value = self._shape.values(rule.attribute)
        gone = 0
        for value in board.facts.get(rule, ()):
            gone |= by_value.get(value, 0)
        union = 0
        for need in covered:
            need.mask &= having & ~gone
            union |= need.mask
        sizes = [len(self._shape.contents[i].values(rule.attribute)) for i in bits(union)]
        values = sum(1 for mask in by_value.values() if mask & union)
        room = values // min(sizes) if sizes else 0
        wanted = sum(need.count for need in covered)
        return None if wanted <= room else Refusal(Reason.TOO_FEW, Short(rule.attribute, wanted, room))

    def _counters(self, board: Board, needs: list[Need]) -> Refusal | None:
        shape = self._shape
        for pool, left in enumerate(shape.counters):
            for (group, name), total in left.items():
                rest = total - board.facts.get(("counter", pool, group, name), 0)
                least = sum(
                    need.count * self._least(need, pool, group, name) for need in needs if need.exclusive
                )
                if least > rest and least > 0:
                    return Refusal(Reason.COUNTER_SHORT, Short(f"{group}/{name}", least, rest))
        return None

    def _least(self, need: Need, pool: int, group: str, name: str) -> int:
        """What even the most modest candidate of a need draws from a counter."""
        least = -1
        for i in bits(need.mask):
            if self._shape.pool_of[i] != pool:
                return 0
            drawn = sum(nanos for g, n, nanos in self._shape.contents[i].counters if (g, n) == (group, name))
            if not drawn:
                return 0
            least = drawn if least < 0 else min(least, drawn)
        return max(least, 0)


def bits(mask: int) -> Iterator[int]:
    """The candidates in a mask, in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _enough(needs: list[Need]) -> Refusal | None:
    """Whether every need has enough candidates, alone and together."""
    for need in needs:
        found = need.mask.bit_count()
        if found < need.count:
            return Refusal(Reason.TOO_FEW, Short(need.name, need.count, found))
    return _jointly(needs) if len(needs) > 1 else None


def _jointly(needs: list[Need], within: int = -1) -> Refusal | None:
    """Hall's condition: what draws from a set of exclusive candidates must not need more than the set has."""
    if len(needs) == 2:  # by far the most common case: a constraint over two requests
        first, second = needs
        wanted = first.count + second.count
        found = ((first.mask | second.mask) & within).bit_count()
        if wanted <= found or not (first.exclusive and second.exclusive):
            return None
        return Refusal(Reason.TOO_FEW, Short("", wanted, found))
    sets: dict[int, int] = {}
    for need in needs:
        if need.exclusive and need.count:
            mask = need.mask & within
            sets[mask] = sets.get(mask, 0) + need.count
    for mask, wanted in sets.items():
        for other, count in sets.items() if len(sets) > 1 else ():
            if other != mask and not other & ~mask:
                wanted += count
        if wanted > mask.bit_count():
            return Refusal(Reason.TOO_FEW, Short("", wanted, mask.bit_count()))
    return None
