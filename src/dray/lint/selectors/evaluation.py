"""Trying selectors on the published devices, in the order in which an allocation would.

Theory of operation: the selectors of a class come first, then those of the request, one after the other; a
selector sees only devices of which all before it were true. What it does with those is its `SelectorOutcome`.
Equal rows of selectors are tried once. Evaluations are counted, and rows for which too few are left are not
tried: lint must come to an end, whatever it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.api.devices.device_cel import CompiledSelector, compile_selector
from dray.cel import EvalFault
from dray.gates import GateSet
from dray.lint.selectors.analysis import analyze_selector
from dray.lint.selectors.device_models import DeviceModel, DeviceModelIndex, FieldKeys

MAX_EVALUATIONS: Final = 100_000
"""Devices looked at by all selectors together; about a second's worth."""

SelectorRow = tuple[str, ...]
FaultOnModel = tuple[DeviceModel, EvalFault]

_GATES: Final = GateSet.from_defaults()


@dataclass(frozen=True, slots=True)
class SelectorOutcome:
    """What one selector does with the devices that reach it."""

    matching: tuple[DeviceModel, ...]
    rejected: tuple[DeviceModel, ...]
    faults: tuple[FaultOnModel, ...]

    @property
    def evaluated(self) -> tuple[DeviceModel, ...]:
        return (*self.matching, *self.rejected, *(model for model, _ in self.faults))


def count_devices(models: tuple[DeviceModel, ...]) -> int:
    """How many devices some models stand for."""
    return sum(model.count for model in models)


def compile_stored_selector(expression: str) -> CompiledSelector | None:
    """An expression as the allocator would use it; nothing when it does not compile."""
    compiled = compile_selector(expression, stored=True, gates=_GATES)
    return compiled if isinstance(compiled, CompiledSelector) else None


def evaluate_selector(expression: str, models: tuple[DeviceModel, ...]) -> SelectorOutcome | None:
    """What an expression does with some devices; nothing when it does not compile."""
    selector = compile_stored_selector(expression)
    if selector is None:
        return None
    matching: list[DeviceModel] = []
    others: list[DeviceModel] = []
    faults: list[FaultOnModel] = []
    for model in models:
        if isinstance(model.binding.value, EvalFault):
            continue  # the slice breaks a rule, which was said there
        result = selector.matches(model.binding)
        if isinstance(result, EvalFault):
            faults.append((model, result))
        else:
            (matching if result else others).append(model)
    return SelectorOutcome(tuple(matching), tuple(others), tuple(faults))


class SelectorEvaluator:
    """All trials on one catalogue."""

    def __init__(self, models: DeviceModelIndex, max_evaluations: int = MAX_EVALUATIONS) -> None:
        self.models = models
        self._remaining = max_evaluations
        self._outcomes: dict[tuple[SelectorRow, SelectorRow], tuple[SelectorOutcome, ...] | None] = {}
        self._reaching: dict[tuple[SelectorRow, FieldKeys], tuple[DeviceModel, ...]] = {}

    def evaluate_row(self, preceding: SelectorRow, row: SelectorRow) -> tuple[SelectorOutcome, ...] | None:
        """One outcome for each selector of a row, after others; nothing when it would take too long."""
        key = (preceding, row)
        if key not in self._outcomes:
            self._outcomes[key] = self._evaluate_uncached(preceding, row)
        return self._outcomes[key]

    def _evaluate_uncached(
        self, preceding: SelectorRow, row: SelectorRow
    ) -> tuple[SelectorOutcome, ...] | None:
        needs = frozenset(
            need for expression in (*preceding, *row) for need in analyze_selector(expression).field_keys
        )
        if not self.models.has_cached_models(needs) and not self._take_budget(len(self.models)):
            return None
        models = self._reaching.get((preceding, needs))
        if models is None:
            passed = self._evaluate_in_order(preceding, self.models.get_view(needs))
            if passed is None:
                return None
            models = passed[-1].matching if passed else self.models.get_view(needs)
            self._reaching[preceding, needs] = models
        return self._evaluate_in_order(row, models)

    def _evaluate_in_order(
        self, row: SelectorRow, models: tuple[DeviceModel, ...]
    ) -> tuple[SelectorOutcome, ...] | None:
        """Each selector on the devices that those before it have left."""
        outcomes = []
        for expression in row:
            outcome = evaluate_selector(expression, models) if self._take_budget(len(models)) else None
            if outcome is None:
                return None
            outcomes.append(outcome)
            models = outcome.matching
        return tuple(outcomes)

    def _take_budget(self, steps: int) -> bool:
        if steps > self._remaining:
            return False
        self._remaining -= steps
        return True
