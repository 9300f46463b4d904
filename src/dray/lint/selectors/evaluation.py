"""Evaluation of selectors on the published devices, in the order of an allocation.

Theory of operation: the selectors of a class come first, then those of the request, one after the other; a
selector is evaluated on the devices for which all before it are true. Its result is a `SelectorOutcome`.
Equal rows of selectors are evaluated once. The number of evaluations is limited, and rows beyond the limit
are not evaluated: lint must terminate, whatever its input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.api.devices.device_cel import CompiledSelector, compile_selector
from dray.api.devices.selector_analysis import analyze_selector
from dray.cel import EvalFault
from dray.gates import GateSet
from dray.lint.selectors.device_models import DeviceModel, DeviceModelIndex, FieldKeys

MAX_EVALUATIONS: Final = 100_000
"""Evaluations of all selectors together; about a second of work."""

SelectorRow = tuple[str, ...]
FaultOnModel = tuple[DeviceModel, EvalFault]

_GATES: Final = GateSet.from_defaults()


@dataclass(frozen=True, slots=True)
class SelectorOutcome:
    """The result of one selector on the devices that reach it."""

    matching: tuple[DeviceModel, ...]
    rejected: tuple[DeviceModel, ...]
    faults: tuple[FaultOnModel, ...]

    @property
    def evaluated(self) -> tuple[DeviceModel, ...]:
        return (*self.matching, *self.rejected, *(model for model, _ in self.faults))


def count_devices(models: tuple[DeviceModel, ...]) -> int:
    """How many devices some models represent."""
    return sum(model.count for model in models)


def compile_stored_selector(expression: str) -> CompiledSelector | None:
    """An expression as the allocator uses it; None when it does not compile."""
    compiled = compile_selector(expression, stored=True, gates=_GATES)
    return compiled if isinstance(compiled, CompiledSelector) else None


def evaluate_selector(expression: str, models: tuple[DeviceModel, ...]) -> SelectorOutcome | None:
    """The result of an expression on some devices; None when it does not compile."""
    selector = compile_stored_selector(expression)
    if selector is None:
        return None
    matching: list[DeviceModel] = []
    others: list[DeviceModel] = []
    faults: list[FaultOnModel] = []
    for model in models:
        if isinstance(model.binding.value, EvalFault):
            continue  # validation of the slice reports it
        result = selector.matches(model.binding)
        if isinstance(result, EvalFault):
            faults.append((model, result))
        else:
            (matching if result else others).append(model)
    return SelectorOutcome(tuple(matching), tuple(others), tuple(faults))


class SelectorEvaluator:
    """Evaluates rows of selectors on one index of device models."""

    def __init__(self, models: DeviceModelIndex, max_evaluations: int = MAX_EVALUATIONS) -> None:
        self.models = models
        self._remaining = max_evaluations
        self._outcomes: dict[tuple[SelectorRow, SelectorRow], tuple[SelectorOutcome, ...] | None] = {}
        self._reaching: dict[tuple[SelectorRow, FieldKeys], tuple[DeviceModel, ...]] = {}

    def evaluate_row(self, preceding: SelectorRow, row: SelectorRow) -> tuple[SelectorOutcome, ...] | None:
        """One outcome for each selector of a row, after others; None when the limit is exceeded."""
        key = (preceding, row)
        if key not in self._outcomes:
            self._outcomes[key] = self._evaluate_uncached(preceding, row)
        return self._outcomes[key]

    def _evaluate_uncached(
        self, preceding: SelectorRow, row: SelectorRow
    ) -> tuple[SelectorOutcome, ...] | None:
        field_keys = frozenset(
            key for expression in (*preceding, *row) for key in analyze_selector(expression).field_keys
        )
        if not self.models.has_cached_models(field_keys) and not self._take_budget(len(self.models)):
            return None
        models = self._reaching.get((preceding, field_keys))
        if models is None:
            passed = self._evaluate_in_order(preceding, self.models.get_view(field_keys))
            if passed is None:
                return None
            models = passed[-1].matching if passed else self.models.get_view(field_keys)
            self._reaching[preceding, field_keys] = models
        return self._evaluate_in_order(row, models)

    def _evaluate_in_order(
        self, row: SelectorRow, models: tuple[DeviceModel, ...]
    ) -> tuple[SelectorOutcome, ...] | None:
        """Evaluate each selector on the devices that match those before it."""
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
