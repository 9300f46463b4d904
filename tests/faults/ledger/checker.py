"""The judge: reads the events of a run in the order of revisions and counts what must never happen.

It knows what is published and what allocations say, and nothing of the ledger. A device is held from the
revision of its claim's allocation until the claim lets go and no preparation of it stands any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.faults.ledger.contested_devices import BUDGET, DRAW, MEMORY, Device, counter_set, devices_of

Held = dict[tuple[Device, str], int | None]
"""What a claim has, by device and share: Gi of memory, or None for the whole."""


@dataclass
class Judge:
    """Goes through events and counts."""

    double: int = 0
    overuse: int = 0
    overdrawn: int = 0
    allocations: int = 0
    quarantined: int = 0
    _live: dict[str, Held] = field(default_factory=dict)
    _prepared: dict[str, tuple[str, Held]] = field(default_factory=dict)
    _hands: dict[Device, Counter[tuple[str, str, int | None]]] = field(
        default_factory=lambda: defaultdict(Counter)
    )

    @property
    def violations(self) -> int:
        return self.double + self.overuse + self.overdrawn

    def claim(self, event: str, document: dict[str, Any]) -> None:
        """A claim changed."""
        uid = document["metadata"]["uid"]
        before = self._live.pop(uid, {})
        after = {} if event == "DELETED" else _held(document)
        if after:
            self._live[uid] = after
        if before == after:
            return
        self._count(uid, before, -1)
        self._count(uid, after, 1)
        if after:
            self.allocations += 1
            self._look(after)
        elif any(self._hands[device] for device, _ in before):
            self.quarantined += any(owner == uid for owner, _ in self._prepared.values())

    def preparation(self, event: str, document: dict[str, Any]) -> None:
        """A node took or let go of devices."""
        name, uid = document["metadata"]["name"], document["spec"]["claim"]["uid"]
        if event == "DELETED":
            self._count(*self._prepared.pop(name, ("", {})), -1)
        elif name not in self._prepared:
            self._prepared[name] = (uid, dict(self._live.get(uid, {})))
            self._count(*self._prepared[name], 1)

    def _count(self, uid: str, held: Held, number: int) -> None:
        for (device, share), amount in held.items():
            hands = self._hands[device]
            hands[uid, share, amount] += number
            if not hands[uid, share, amount]:
                del hands[uid, share, amount]

    def _look(self, touched: Held) -> None:
        for device, _ in touched:
            amounts = [amount for _, _, amount in self._hands[device]]
            self.double += None in amounts and len(amounts) > 1
            self.overuse += sum(amount or 0 for amount in amounts) > MEMORY
            pool, name = device
            if name.startswith("partition"):
                mates = [
                    other for other in devices_of("partition") if counter_set(other) == counter_set(name)
                ]
                self.overdrawn += DRAW * sum(bool(self._hands[pool, other]) for other in mates) > BUDGET


def _held(document: dict[str, Any]) -> Held:
    allocation = (document.get("status") or {}).get("allocation") or {}
    found: Held = {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        share = result.get("shareID")
        amount = int(result["consumedCapacity"]["memory"].removesuffix("Gi")) if share else None
        found[(result["pool"], result["device"]), share or ""] = amount
    return found
