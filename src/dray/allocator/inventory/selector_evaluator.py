"""The judge that a stock asks: whether a selector is true of a device, in CEL.

Selectors that reach the allocator were stored, so they may use everything, whatever the gates say now. A
selector that does not compile fails on every device, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.allocator.inventory.device_profiles import Verdict
from dray.api.devices.device_cel import Compiled, DeviceBinding, Selector, prepare
from dray.api.resource import Device
from dray.values.cache_bounds import Bound

COMPILED = Bound("selectors at hand", 1_024, "a judge")


class Selectors:
    """A judge of selectors; the last device it looked at is kept, as several selectors ask about one."""

    __slots__ = ("_binding", "_compile", "_compiled")

    def __init__(self, compile_stored: Callable[[str], Compiled]) -> None:
        self._compile = compile_stored
        self._compiled: dict[str, Compiled] = {}
        self._binding: DeviceBinding | None = None

    def __call__(self, expression: str, driver: str, device: Device) -> Verdict:
        selector = self.reading(expression)
        if not isinstance(selector, Selector):
            return str(selector)
        # Read once: another thread may ask about another device in between.
        binding = self._binding
        if binding is None or not binding.is_of(driver, device):
            binding = self._binding = prepare(driver, device)
        verdict = selector.matches(binding)
        return verdict if isinstance(verdict, bool) else str(verdict)

    def reading(self, expression: str) -> Compiled:
        """How an expression is judged on plain devices."""
        found = self._compiled.get(expression)
        if found is None:
            found = COMPILED.keep(self._compiled, expression, self._compile(expression))
        return found
