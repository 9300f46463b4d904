"""Comparison of our answer with that of the oracle, with the known differences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.devices.device_cel import DeviceBinding, InvalidSelector, bind_device, compile_selector
from dray.api.resource.device import Device
from dray.cel import CompileStage, EvalFault, FaultKind
from dray.gates import GateSet
from tests.fuzz_cel.expressions import DOMAIN
from tests.fuzz_cel.oracle import Opinion, Oracle

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "i": {"int": 3},
    "neg": {"int": -7},
    "b": {"bool": True},
    "f": {"bool": False},
    "s": {"string": "Hello World"},
    "e": {"string": ""},
    "u": {"string": "größe-日本"},
    "li": {"ints": [1, 2, 3]},
    "lb": {"bools": [True, False]},
    "ls": {"strings": ["a", "b", "c"]},
}
_GATES = GateSet.from_defaults()

# Differences that must be, by the words of the one who fails. The first two groups are about what exists, the
# last two about what happens; there, cel-go and Kubernetes are on our side.
_WE_REFUSE = re.compile(
    r"expected type '.*' but found '"  # lists of mixed types
    r"|invalid (matches|duration|timestamp) argument"
    r"|program instantiation failed"  # constant conversions that can only fail
)
_THEY_REFUSE = re.compile(
    r"no matching overload for '_[<>]=?_' applied to '\((int|uint|double), (int|uint|double)\)'"
    r"|no matching overload for '(indexOf|lastIndexOf)'"  # of lists
    r"|expression of type 'dyn' cannot be the range"  # an item of `[]` again
    r"|applied to '.*T%\d"  # items of `[]`, whose type the oracle settles on too early
)
_WE_FAIL = re.compile(
    r"NaN values cannot be ordered"
    r"|no such overload: (int|uint|double)\(bool\)"
)
_THEY_FAIL = re.compile(
    r"No matching overloads found : _\[\?_\]\(list, (double|uint64)\)"
    r"|No matching overloads found : \(list\)\.(indexOf|lastIndexOf)\("
    r"|<start> or <end> is greater than <string>.size\(\)"  # up to the very end is allowed
    r"|Applying SELECT to non-message type"  # of what has no parts, by `has` and `.?`
)
# The oracle loses the value of a bound name in a chain of `&&` or `||`, and in a branch of `?:`.
_LOST_NAME = re.compile(r"No matching overloads found : _(\|\||&&)_|^a value of type")


@dataclass(frozen=True)
class Answer:
    """What we say, in the form of an `Opinion`."""

    value: bool | None
    failed: str = ""
    words: str = ""
    broken: bool = False


def device() -> DeviceBinding:
    """The device all expressions are about."""
    return bind_device(DOMAIN, msgspec.convert({"attributes": ATTRIBUTES}, Device))


def oracle() -> Oracle:
    """The oracle, with the same attributes."""
    held = {key: next(iter(value.values())) for key, value in ATTRIBUTES.items()}
    return Oracle(DOMAIN, {DOMAIN: held})


def answer(expression: str, binding: DeviceBinding) -> Answer:
    """Compile and evaluate with our engine."""
    compiled = compile_selector(expression, stored=True, gates=_GATES)
    if isinstance(compiled, InvalidSelector):
        broken = compiled.compile_fault is not None and compiled.compile_fault.stage is CompileStage.INTERNAL
        return Answer(None, "compile", compiled.detail, broken)
    result = compiled.matches(binding)
    if isinstance(result, EvalFault):
        return Answer(None, "run", result.message, result.kind is FaultKind.INTERNAL)
    return Answer(result)


def fault(expression: str, ours: Answer, theirs: Opinion) -> str | None:
    """What is wrong with our answer, or nothing."""
    if ours.broken:
        return "our engine broke"
    if ours.value == theirs.value and bool(ours.failed) == bool(theirs.failed):
        return None
    if _must_be(ours, theirs, expression):
        return None
    if theirs.failed:
        return f"we say {ours.value}, the oracle fails"
    return f"we fail ({ours.failed}), the oracle says {theirs.value}" if ours.failed else "the values differ"


def _must_be(ours: Answer, theirs: Opinion, expression: str) -> bool:
    if ours.failed:
        return bool((_WE_REFUSE if ours.failed == "compile" else _WE_FAIL).search(ours.words))
    if _LOST_NAME.search(theirs.words) and "cel.bind(" in expression:
        return True
    return bool((_THEY_REFUSE if theirs.failed == "compile" else _THEY_FAIL).search(theirs.words))
