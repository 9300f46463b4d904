"""Admitted allocations that the watch has not shown yet.

Theory of operation: an API server stores an update only if the object still has the revision that admission
saw as the old object; otherwise it reads the object again and asks admission again. So a write that was
admitted for revision R of a claim can be stored only while the claim is at R. An admitted allocation
therefore ends when the watch shows the claim at a later revision: either it is this write, and then the
stored claim counts, or it is another one, and then this write can never be stored. It also ends when the
claim is deleted. It never ends by time alone: one that is not seen for longer than a request can take is
fenced, or, if the server refuses that, ends when the claim is read and is still at revision R.

Several writes may be admitted for one revision, for example by two schedulers. At most one of them is stored,
but which one is unknown until then, so the claim holds the devices of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dray.claims.ledger.rows import DeviceId, Holder, Holding

MAX_PER_CLAIM: Final = 16
"""How many different writes of one claim may be admitted and not seen."""
MAX_ADMITTED: Final = 50_000
"""How many admitted writes may be unseen altogether."""

HeldDevices = tuple[tuple[DeviceId, Holding], ...]
"""What an allocation holds, device by device."""


@dataclass(frozen=True, slots=True)
class AdmittedAllocation:
    """An allocation that was admitted for a revision of its claim."""

    holder: Holder
    revision: int
    """The revision of the claim that the write replaces."""
    holdings: HeldDevices
    admitted_at: float
    """Monotonic seconds."""


class AdmittedAllocations:
    """The admitted allocations by the uid of their claim."""

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[AdmittedAllocation, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AdmittedAllocation]:
        return (admitted for each in self._by_uid.values() for admitted in each)

    def get(self, uid: str) -> tuple[AdmittedAllocation, ...]:
        """The admitted allocations of a claim."""
        return self._by_uid.get(uid, ())

    def can_admit(self, uid: str) -> bool:
        """Whether another write of this claim may be admitted."""
        return self._count < MAX_ADMITTED and len(self.get(uid)) < MAX_PER_CLAIM

    def add(self, new: AdmittedAllocation) -> None:
        """Add an admitted allocation; the same write again, repeated by a client, replaces the first."""
        uid = new.holder.uid
        kept = [
            each for each in self.get(uid) if (each.revision, each.holdings) != (new.revision, new.holdings)
        ]
        self._put(uid, (*kept, new))

    def end(self, uid: str, revision: int | None = None) -> None:
        """End those of a claim that can never be stored: it is at `revision` now; None: it is deleted."""
        kept = () if revision is None else tuple(each for each in self.get(uid) if each.revision >= revision)
        self._put(uid, kept)

    def expire(self, uid: str, deadline: float) -> None:
        """End those of a claim that were admitted before `deadline`."""
        self._put(uid, tuple(each for each in self.get(uid) if each.admitted_at >= deadline))

    def _put(self, uid: str, now: tuple[AdmittedAllocation, ...]) -> None:
        self._count += len(now) - len(self.get(uid))
        if now:
            self._by_uid[uid] = now
        else:
            self._by_uid.pop(uid, None)
