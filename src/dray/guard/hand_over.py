"""The hand-over from one leader to the next: a mark on the lease says that nothing is on its way.

Theory of operation: a leader that ends in an orderly way stops to admit, waits until the watch has shown all
it admitted, and marks the lease with the number of its term. The next leader finds the number one below its
own, and may start at once. Without the mark it does not know what was admitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.client.client import Client
from dray.client.leases import LEASE_KIND
from dray.client.patches import MergePatch

DRAINED_ANNOTATION: Final = "dray.dev/guard-drained-term"


@dataclass(frozen=True, slots=True)
class LeadershipTerm:
    """The term of a leader, as its lease says."""

    number: int
    is_drained: bool
    """Whether the leader before has marked that nothing is on its way."""

    @property
    def is_first(self) -> bool:
        """Whether the lease is new: nobody led before, or somebody deleted the lease."""
        return self.number == 0


async def read_term(client: Client, name: str, namespace: str) -> LeadershipTerm:
    """Read the term of the leader that holds the lease now."""
    lease = await client.get(LEASE_KIND, name, namespace)
    number = int((lease.get("spec") or {}).get("leaseTransitions") or 0)
    mark = ((lease.get("metadata") or {}).get("annotations") or {}).get(DRAINED_ANNOTATION)
    return LeadershipTerm(number, mark == str(number - 1))


async def mark_drained(client: Client, name: str, namespace: str, term: LeadershipTerm) -> None:
    """Mark that nothing is on its way which was admitted in this term, nor will be."""
    annotations = {DRAINED_ANNOTATION: str(term.number)}
    await client.patch(LEASE_KIND, name, MergePatch({"metadata": {"annotations": annotations}}), namespace)
