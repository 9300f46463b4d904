"""The judge that a stock asks: whether a selector is true of a device, in CEL.

Selectors that reach the allocator were stored, so they may use everything, whatever the gates say now. A
selector that does not compile fails on every device, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.allocator.contents import Verdict
from dray.api.deviceenv import Compiled, DeviceBinding, Selector, prepare
from dray.api.resource import Device


class Selectors:
    """A judge of selectors; the last device it looked at is kept, as several selectors ask about one."""

    __slots__ = ("_binding", "_compile", "_device")

    def __init__(self, compile_stored: Callable[[str], Compiled]) -> None:
        self._compile = compile_stored
        self._device: Device | None = None
        self._binding: DeviceBinding | None = None

    def __call__(self, expression: str, driver: str, device: Device) -> Verdict:
        selector = self._compile(expression)
        if not isinstance(selector, Selector):
            return str(selector)
        if self._binding is None or device is not self._device:
            self._device, self._binding = device, prepare(driver, device)
        verdict = selector.matches(self._binding)
        return verdict if isinstance(verdict, bool) else str(verdict)
