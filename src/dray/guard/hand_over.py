"""The hand-over from one leader to the next: a mark on the lease says that nothing is on its way.

Theory of operation: a leader that ends in an orderly way stops to admit, waits until the watch has shown all
it admitted, and marks the lease with the number of its term. The next leader finds the number one below its
own, removes the mark, and may start at once. Without the mark it does not know what was admitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.client.client import Client
from dray.client.errors import ConflictError
from dray.client.leases import LEASE_KIND
from dray.client.object_refs import Document, get_resource_version
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


async def begin_term(client: Client, name: str, namespace: str) -> LeadershipTerm:
    """Read the term of the leader that holds the lease now, and remove the mark of the leader before.

    The mark is for one leader only: a guard that loses its lease and gets it again, without another one in
    between, leads in the same term, and must not take the old mark for its own.
    """
    while True:
        lease = await client.get(LEASE_KIND, name, namespace)
        number, mark = _read_number(lease), _read_mark(lease)
        if mark is None:
            return LeadershipTerm(number, is_drained=False)
        try:
            await _write_mark(client, lease, None)
        except ConflictError:
            continue  # a renewal came between
        return LeadershipTerm(number, is_drained=mark == str(number - 1))


async def mark_drained(client: Client, name: str, namespace: str, term: LeadershipTerm) -> None:
    """Mark that nothing is on its way which was admitted in this term, nor will be.

    The write is pinned to a version of the lease, so that it cannot arrive in a later term.
    """
    while True:
        lease = await client.get(LEASE_KIND, name, namespace)
        if _read_number(lease) != term.number:
            return
        try:
            await _write_mark(client, lease, str(term.number))
            return
        except ConflictError:
            continue  # a renewal came between


def _read_number(lease: Document) -> int:
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def _read_mark(lease: Document) -> str | None:
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    return annotations.get(DRAINED_ANNOTATION)


async def _write_mark(client: Client, lease: Document, mark: str | None) -> None:
    metadata = lease["metadata"]
    version, annotations = get_resource_version(lease), {DRAINED_ANNOTATION: mark}
    patch = MergePatch({"metadata": {"resourceVersion": version, "annotations": annotations}})
    await client.patch(LEASE_KIND, metadata["name"], patch, metadata["namespace"])
