"""Selector evaluator: evaluates CEL selectors on devices for an inventory.

Selectors that reach the allocator are stored ones, so they may use every function, whatever the gates are
now. A selector that does not compile fails on every device, with the compile error.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.allocator.inventory.device_profiles import SelectorResult
from dray.api.devices.device_cel import CompiledSelector, DeviceBinding, SelectorCompilation, bind_device
from dray.api.resource import Device
from dray.values.cache_bounds import CacheBound

COMPILED_SELECTORS = CacheBound("compiled selectors", 1_024, "a selector evaluator")


class CelSelectorEvaluator:
    """Evaluates selectors; keeps the last device, because several selectors are evaluated on one."""

    __slots__ = ("_binding", "_compile", "_compiled")

    def __init__(self, compile_stored: Callable[[str], SelectorCompilation]) -> None:
        self._compile = compile_stored
        self._compiled: dict[str, SelectorCompilation] = {}
        self._binding: DeviceBinding | None = None

    def __call__(self, expression: str, driver: str, device: Device) -> SelectorResult:
        selector = self.compile_expression(expression)
        if not isinstance(selector, CompiledSelector):
            return str(selector)
        # Read once: another thread may evaluate another device in between.
        binding = self._binding
        if binding is None or not binding.is_bound_to(driver, device):
            binding = self._binding = bind_device(driver, device)
        result = selector.matches(binding)
        return result if isinstance(result, bool) else str(result)

    def compile_expression(self, expression: str) -> SelectorCompilation:
        """How an expression is evaluated on plain devices."""
        found = self._compiled.get(expression)
        if found is None:
            found = COMPILED_SELECTORS.put(self._compiled, expression, self._compile(expression))
        return found
