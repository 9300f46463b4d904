"""Guards of a selector: presence tests that keep it from failing on devices without an attribute or capacity.

The functions here write expressions; whether a guarded selector helps is for the caller to test.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.api.devices.selector_analysis import analyze_selector
from dray.api.devices.selector_references import FieldKey
from dray.cel.syntax.grammar import RESERVED_WORDS

_UNUSABLE_NAMES = RESERVED_WORDS | {"in", "true", "false", "null"}


def format_field_path(field_key: FieldKey) -> str:
    """An attribute or capacity as expressions write it."""
    kind, domain, name = field_key
    return f'device.{kind}["{domain}"].{name}'


def build_presence_test(field_key: FieldKey) -> str:
    """The condition that a device has an attribute or capacity."""
    kind, domain, name = field_key
    if name.isidentifier() and name not in _UNUSABLE_NAMES:
        return f"has({format_field_path(field_key)})"
    return f'"{name}" in device.{kind}["{domain}"]'


def find_first_use(expression: str, field_key: FieldKey) -> int:
    """Where the first condition starts that reads an attribute or capacity."""
    for condition in analyze_selector(expression).conditions:
        references = condition.references
        if any(one.key == field_key and not one.is_presence_test for one in references):
            return condition.offset
    return 0


def insert_guards(guards: Mapping[str, int], expression: str) -> str:
    """An expression with each guard inserted at its offset, before the condition that needs it."""
    text = expression
    for place in sorted(set(guards.values()), reverse=True):
        tests = " && ".join(guard for guard, where in guards.items() if where == place)
        text = f"{text[:place]}{tests} && {text[place:]}"
    # The operands of `||` and `?` at the top must stay together.
    expected = len(analyze_selector(expression).conditions) + len(guards)
    if guards and len(analyze_selector(text).conditions) < expected:
        return f"{' && '.join(guards)} && ({expression})"
    return text
