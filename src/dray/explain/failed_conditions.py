"""Reading a selector that is false: which part of it, what that part looks at, how near a device comes.

Theory of operation: a selector is often a row of conditions joined by `&&`. Each of them is put before the
judge on its own, and the first that is not true is what the device fails. When a condition looks at exactly
one attribute or capacity, the value of the device says more than the condition. Reading is careful: what is
not plainly a row of conditions is taken as one, and a condition that cannot be read shows no value.

Rules for this file: verdicts come from the judge and nowhere else; text is only ever cut, never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.explain.wording import to_single_line

_REFERENCE = re.compile(
    r"device\.(attributes|capacity)"
    r"\[\s*(?:\"([^\"\\]*)\"|'([^'\\]*)')\s*\]"
    r"(?:\.([A-Za-z_]\w*)|\[\s*(?:\"([^\"\\]*)\"|'([^'\\]*)')\s*\])"
)
_OPENING, _CLOSING = "([{", ")]}"


class FailedCondition(msgspec.Struct, frozen=True):
    """What a device fails: the condition, what it looks at, what the device has there.

    `is_only_failure` says that it is the only one of several conditions.

    `distance` sorts devices by how near they come: conditions that fail, then the distance of the value.
    """

    condition: str
    is_only_failure: bool
    subject: str
    value: str
    is_amount: bool
    distance: tuple[int, Any]


def find_failed_condition(profile: DeviceProfile, expression: str) -> FailedCondition:
    """How a device fails a selector that is false."""
    conditions = split_conditions(expression)
    failing = [text for text in conditions if profile.evaluate(text) is not True] if conditions[1:] else []
    condition = failing[0] if failing else expression
    reference = find_only_reference(condition)
    subject, value, amount = _find_value(profile, *reference) if reference is not None else ("", "", None)
    distance = -amount * _find_direction(condition) if amount is not None else 0
    is_amount = reference is not None and reference[0] == "capacity"
    return FailedCondition(
        condition, len(failing) == 1, subject, value, is_amount, (len(failing) or 1, distance)
    )


def split_conditions(expression: str) -> list[str]:
    """The conditions that `&&` joins at the top; the expression alone when it is anything else."""
    return list(_split_conditions(expression))


@lru_cache(maxsize=1024)
def _split_conditions(expression: str) -> Sequence[str]:
    if "\\" in expression or '"""' in expression or "'''" in expression or "//" in expression:
        return [expression]
    parts, start, depth, quote = [], 0, 0, ""
    for i, char in enumerate(expression):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif depth == 0 and (char == "?" or expression.startswith("||", i)):
            return [expression]
        elif depth == 0 and expression.startswith("&&", i):
            parts.append(expression[start:i].strip())
            start = i + 2
    parts.append(expression[start:].strip())
    return parts if all(parts) else [expression]


def remove_condition(expression: str, condition: str) -> str | None:
    """A selector without one of its conditions; nothing when it has no other."""
    rest = [text for text in split_conditions(expression) if text != condition]
    return " && ".join(rest) if rest and len(rest) < len(split_conditions(expression)) else None


@lru_cache(maxsize=1024)
def find_only_reference(condition: str) -> tuple[str, str, str] | None:
    """The attribute or capacity a condition looks at, as (kind, domain, name), when it is just one."""
    found = {
        (kind, double or single, name or quoted or other)
        for kind, double, single, name, quoted, other in _REFERENCE.findall(condition)
    }
    if len(found) != 1 or condition.count("device.") != len(_REFERENCE.findall(condition)):
        return None
    return next(iter(found))


def shorten_condition(condition: str) -> str:
    """A condition as people say it: `size == "large"`, without the way to the attribute."""
    return _REFERENCE.sub(lambda found: next(filter(None, found.groups()[3:]), found[0]), condition)


def build_guards(expression: str) -> list[str]:
    """Conditions that keep a selector from looking at what a device lacks, one per attribute or capacity."""
    found = dict.fromkeys(
        (kind, double or single, name or quoted or other)
        for kind, double, single, name, quoted, other in _REFERENCE.findall(expression)
    )
    return [f'"{name}" in device.{kind}["{domain}"]' for kind, domain, name in found]


def _find_value(profile: DeviceProfile, kind: str, domain: str, name: str) -> tuple[str, str, int | None]:
    """What a device has: the name, the value as text, and as a number where it is one."""
    device = profile.device
    plain = (f"{domain}/{name}", *((name,) if domain == profile.driver else ()))
    if kind == "capacity":
        for key in plain:
            held = device.capacity.get(key)
            if held is not None and held.value is not None:
                return name, str(held.value), held.value.nanos
        return name, "", None
    for key in plain:
        typed = device.attributes[key].get_typed_values() if key in device.attributes else None
        if typed is not None:
            kept = typed[1][0] if len(typed[1]) == 1 else None
            number = kept if isinstance(kept, int) and not isinstance(kept, bool) else None
            return name, format_values(typed[1]), number
    return name, "", None


def format_values(values: Collection[Any]) -> str:
    """Attribute values as people write them; several as a list in a fixed order."""
    texts = sorted(str(v).lower() if isinstance(v, bool) else to_single_line(str(v)) for v in values)
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _find_direction(condition: str) -> int:
    """1 when more of the value would do, -1 when less, 0 when nobody can tell."""
    text = condition.replace("->", "").strip()
    if not _REFERENCE.match(text.lstrip("( ")):
        return 0
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", text)
    more = ">" in bare or "isGreaterThan" in bare
    less = "<" in bare or "isLessThan" in bare
    return more - less
