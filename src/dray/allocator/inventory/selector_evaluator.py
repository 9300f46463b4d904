"""The judge that a stock asks: whether a selector is true of a device, in CEL.

Selectors that reach the allocator were stored, so they may use everything, whatever the gates say now. A
selector that does not compile fails on every device, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.allocator.inventory.device_profiles import SelectorResult
from dray.api.devices.device_cel import CompiledSelector, DeviceBinding, SelectorCompilation, bind_device
from dray.api.resource import Device
from dray.values.cache_bounds import CacheBound

COMPILED_SELECTORS = CacheBound("compiled selectors", 1_024, "a selector evaluator")


class CelSelectorEvaluator:
    """A judge of selectors; the last device it looked at is kept, as several selectors ask about one."""

    __slots__ = ("_binding", "_compile", "_compiled")

    def __init__(self, compile_stored: Callable[[str], SelectorCompilation]) -> None:
        self._compile = compile_stored
        self._compiled: dict[str, SelectorCompilation] = {}
        self._binding: DeviceBinding | None = None

    def __call__(self, expression: str, driver: str, device: Device) -> SelectorResult:
        selector = self.compile_expression(expression)
        if not isinstance(selector, CompiledSelector):
            return str(selector)
        # Read once: another thread may ask about another device in between.
        binding = self._binding
        if binding is None or not binding.is_bound_to(driver, device):
            binding = self._binding = bind_device(driver, device)
        verdict = selector.matches(binding)
        return verdict if isinstance(verdict, bool) else str(verdict)

    def compile_expression(self, expression: str) -> SelectorCompilation:
        """How an expression is judged on plain devices."""
        found = self._compiled.get(expression)
        if found is None:
            found = COMPILED_SELECTORS.put(self._compiled, expression, self._compile(expression))
        return found
