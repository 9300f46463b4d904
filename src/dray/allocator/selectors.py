"""The judge that a stock asks: whether a selector is true of a device, in CEL.

Selectors that reach the allocator were stored, so they may use everything, whatever the gates say now. A
selector that does not compile fails on every device, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.allocator.contents import Reading, Verdict
from dray.api.deviceenv import Compiled, DeviceBinding, Selector, prepare
from dray.api.resource import Device
from dray.cel import EvalFault
from dray.values.bounds import Bound

READINGS = Bound("how selectors are judged", 1_024, "a judge")


class Selectors:
    """A judge of selectors; the last device it looked at is kept, as several selectors ask about one."""

    __slots__ = ("_binding", "_compile", "_readings")

    def __init__(self, compile_stored: Callable[[str], Compiled]) -> None:
        self._compile = compile_stored
        self._readings: dict[str, Reading] = {}
        self._binding: DeviceBinding | None = None

    def __call__(self, expression: str, driver: str, device: Device) -> Verdict:
        selector = self._compile(expression)
        if not isinstance(selector, Selector):
            return str(selector)
        # Read once: another thread may ask about another device in between.
        binding = self._binding
        if binding is None or not binding.is_of(driver, device):
            binding = self._binding = prepare(driver, device)
        return _verdict(selector.matches(binding))

    def reading(self, expression: str) -> Reading:
        """How plain devices are judged; a selector that does not compile fails on all of them alike."""
        found = self._readings.get(expression)
        if found is None:
            found = READINGS.keep(self._readings, expression, _reading(self._compile(expression)))
        return found


def _reading(selector: Compiled) -> Reading:
    if not isinstance(selector, Selector):
        return Reading((), lambda driver, device: str(selector))
    matches = selector.matches_plain
    return Reading(
        selector.reads,
        lambda driver, device: _verdict(matches(driver, device)),
        selector.driver,
        selector.driver_alone,
    )


def _verdict(found: bool | EvalFault) -> Verdict:
    return found if found is True or found is False else str(found)
