"""The table of admission rules: which rules review a change, found by its kind and what happens to it.

Theory of operation: a rule says in its scopes which changes it reviews at all. For any other change of its
kinds it would admit without adding anything, so it need not be called. Most changes are in the scope of two
or three of sixteen rules. What was found for one sort of change holds for all changes of that sort.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.kinds import Kind
from dray.server.admission.change import AdmissionRule, ObjectChange


class RuleTable:
    """Finds the rules for a change, in the order in which they were given."""

    def __init__(self, rules: Sequence[AdmissionRule]) -> None:
        self.rules = tuple(rules)
        # Bounded: routing knows the kinds with their subresources, and no other is written.
        self._found: dict[tuple[Kind, str, str, str], tuple[AdmissionRule, ...]] = {}

    def find(self, change: ObjectChange) -> tuple[AdmissionRule, ...]:
        """Return the rules in whose scope the change is."""
        call = change.request.call
        key = change.kind, change.operation, call.verb, call.subresource
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = tuple(rule for rule in self.rules if is_in_scope(rule, change))
        return found


def is_in_scope(rule: AdmissionRule, change: ObjectChange) -> bool:
    """Return whether a rule reviews changes of this sort."""
    call = change.request.call
    return any(
        scope.includes(change.kind, change.operation, call.verb, call.subresource) for scope in rule.scopes
    )
