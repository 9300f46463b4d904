"""Selectors without CEL: a handful of words that a few lines understand.

any   never   fails           always true, always false, cannot be judged
driver:NAME                   published by this driver
shared   single               allows several allocations, or not
attr:NAME=TEXT                has this value; cannot be judged when the device lacks the attribute
attr?:NAME=TEXT               has this value; false when it lacks the attribute
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dray.api.devices.device_value import DeviceRead, DeviceReads
from dray.api.resource import Device


class ToyEvaluator:
    """Judges, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, expression: str, driver: str, device: Device) -> bool | str:
        self.asked.append((expression, device.name))
        return evaluate_toy(expression, driver, device)


def evaluate_toy(expression: str, driver: str, device: Device) -> bool | str:
    """The verdict: true, false, or why there is none."""
    word, _, rest = expression.partition(":")
    match word:
        case "any":
            return True
        case "never":
            return False
        case "fails":
            return "cannot be judged"
        case "driver":
            return driver == rest
        case "shared":
            return bool(device.allow_multiple_allocations)
        case "single":
            return not device.allow_multiple_allocations
        case "attr" | "attr?":
            name, _, text = rest.partition("=")
            held = device.attributes[name].get_typed_values() if name in device.attributes else None
            if held is None:
                return False if word == "attr?" else f"no such key: {name}"
            return text in [str(value) for value in held[1]]
    raise ValueError(f"the toy judge does not know `{expression}`")


class ToyReading(NamedTuple):
    """How a word is judged on plain devices."""

    reads: DeviceReads | None
    evaluate: Callable[[str, Device], bool | str]
    driver: str | None = None
    driver_alone: bool = False
    text: str | None = None


class GroupingToyEvaluator(ToyEvaluator):
    """The same judge; it also tells what its words read, so that devices are judged in groups."""

    def compile_expression(self, expression: str) -> ToyReading:
        def evaluator(driver: str, device: Device) -> bool | str:
            return self(expression, driver, device)

        word, _, rest = expression.partition(":")
        if word == "driver":
            return ToyReading((), evaluator, rest, driver_alone=True)
        if word in ("shared", "single"):
            return ToyReading((DeviceRead("allowMultipleAllocations"),), evaluator)
        if word in ("attr", "attr?"):
            domain, _, id = rest.partition("=")[0].partition("/")
            # A name without a domain belongs to the driver of the device, and the words do not say which.
            return ToyReading((DeviceRead("attributes", domain, id),) if id else None, evaluator)
        return ToyReading((), evaluator)
