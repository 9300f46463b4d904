"""Trying selectors on the published devices, in the order in which an allocation would.

Theory of operation: the selectors of a class come first, then those of the request, one after the other; a
selector sees only devices of which all before it were true. What it does with those is its `Outcome`. Equal
rows of selectors are tried once. Evaluations are counted, and rows for which too few are left are not tried:
lint must come to an end, whatever it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.api.devices.device_cel import Selector, compile_selector
from dray.cel import EvalFault
from dray.gates import GateSet
from dray.lint.selectors.analysis import read
from dray.lint.selectors.device_models import Catalogue, Model, Needs

MOST_STEPS: Final = 100_000
"""Devices looked at by all selectors together; about a second's worth."""

Row = tuple[str, ...]
Fault = tuple[Model, EvalFault]

_GATES: Final = GateSet.default()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one selector does with the devices that reach it."""

    matching: tuple[Model, ...]
    others: tuple[Model, ...]
    faults: tuple[Fault, ...]

    @property
    def tried(self) -> tuple[Model, ...]:
        return (*self.matching, *self.others, *(model for model, _ in self.faults))


def counted(models: tuple[Model, ...]) -> int:
    """How many devices some models stand for."""
    return sum(model.count for model in models)


def selector_of(expression: str) -> Selector | None:
    """An expression as the allocator would use it; nothing when it does not compile."""
    compiled = compile_selector(expression, stored=True, gates=_GATES)
    return compiled if isinstance(compiled, Selector) else None


def tried_on(expression: str, models: tuple[Model, ...]) -> Outcome | None:
    """What an expression does with some devices; nothing when it does not compile."""
    selector = selector_of(expression)
    if selector is None:
        return None
    matching: list[Model] = []
    others: list[Model] = []
    faults: list[Fault] = []
    for model in models:
        if isinstance(model.binding.value, EvalFault):
            continue  # the slice breaks a rule, which was said there
        result = selector.matches(model.binding)
        if isinstance(result, EvalFault):
            faults.append((model, result))
        else:
            (matching if result else others).append(model)
    return Outcome(tuple(matching), tuple(others), tuple(faults))


class Trials:
    """All trials on one catalogue."""

    def __init__(self, catalogue: Catalogue, most: int = MOST_STEPS) -> None:
        self.catalogue = catalogue
        self._left = most
        self._known: dict[tuple[Row, Row], tuple[Outcome, ...] | None] = {}
        self._reaching: dict[tuple[Row, Needs], tuple[Model, ...]] = {}

    def outcomes(self, before: Row, row: Row) -> tuple[Outcome, ...] | None:
        """One outcome for each selector of a row, after others; nothing when it would take too long."""
        key = (before, row)
        if key not in self._known:
            self._known[key] = self._tried(before, row)
        return self._known[key]

    def _tried(self, before: Row, row: Row) -> tuple[Outcome, ...] | None:
        needs = frozenset(need for expression in (*before, *row) for need in read(expression).needs)
        if not self.catalogue.has_view(needs) and not self._spent(len(self.catalogue)):
            return None
        models = self._reaching.get((before, needs))
        if models is None:
            passed = self._in_turn(before, self.catalogue.view(needs))
            if passed is None:
                return None
            models = passed[-1].matching if passed else self.catalogue.view(needs)
            self._reaching[before, needs] = models
        return self._in_turn(row, models)

    def _in_turn(self, row: Row, models: tuple[Model, ...]) -> tuple[Outcome, ...] | None:
        """Each selector on the devices that those before it have left."""
        outcomes = []
        for expression in row:
            outcome = tried_on(expression, models) if self._spent(len(models)) else None
            if outcome is None:
                return None
            outcomes.append(outcome)
            models = outcome.matching
        return tuple(outcomes)

    def _spent(self, steps: int) -> bool:
        if steps > self._left:
            return False
        self._left -= steps
        return True
