"""Open requests: requests that still need devices, and the devices they may take."""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.search.pruning.demands import Demand

OpenAlternative = tuple[Demand, int, int]
"""A demand, how many devices it still needs, and the devices it may take them from."""

OpenPart = tuple[int, Demand, int]
"""A request, its alternative, and how many devices it still needs."""


class OpenRequest:
    """A request that still needs devices, with the alternatives that could provide them.

    Several requests that need the same can be merged: `parts` has the share of each.
    """

    __slots__ = (
        "alternatives",
        "choice_index",
        "constraint_mask",
        "count",
        "exclusive",
        "mask",
        "name",
        "parts",
    )

    def __init__(
        self, choice_index: int, alternatives: Sequence[OpenAlternative], parts: tuple[OpenPart, ...] = ()
    ) -> None:
        self.choice_index = choice_index
        self.alternatives = alternatives
        first = alternatives[0]
        self.name = first[0].name
        self.count = first[1]
        self.mask = first[2]
        self.exclusive = not first[0].admin
        self.constraint_mask = first[0].constraint_mask
        self.parts = parts
        if len(alternatives) == 1:
            self.parts = parts or ((choice_index, first[0], first[1]),)
            return
        for demand, count, mask in alternatives[1:]:
            self.mask |= mask
            self.count = min(self.count, count)
            self.exclusive &= not demand.admin
            self.constraint_mask &= demand.constraint_mask

    @property
    def has_enough(self) -> bool:
        """Whether every alternative has devices enough."""
        return all(mask.bit_count() >= count for _demand, count, mask in self.alternatives)

    @property
    def key(self) -> tuple[tuple[int, int, int], ...]:
        """Equal for requests that need the same."""
        return tuple([(demand.kind, count, mask) for demand, count, mask in self.alternatives])

    def replace_alternatives(self, alternatives: Sequence[OpenAlternative]) -> OpenRequest:
        """The same request with fewer alternatives, or fewer devices."""
        return OpenRequest(self.choice_index, alternatives, self.parts)

    def take_devices(self, taken: int) -> OpenRequest:
        """What is left of a request with one alternative after some devices were taken for it."""
        demand, count, mask = self.alternatives[0]
        number = taken.bit_count()
        parts = []
        for choice, own, needed in self.parts:
            given = min(needed, number)
            number -= given
            if needed > given:
                parts.append((choice, own, needed - given))
        return OpenRequest(
            self.choice_index, [(demand, count - taken.bit_count(), mask & ~taken)], tuple(parts)
        )


def merge_requests(open_requests: Sequence[OpenRequest], shareable: int) -> list[OpenRequest]:
    """Merge requests for unshared devices that need the same.

    A request never takes a shared device twice, two requests may: those are not merged.
    """
    found: list[OpenRequest] = []
    known: dict[tuple[int, int], int] = {}
    for one in open_requests:
        if not one.parts or one.mask & shareable or one.alternatives[0][0].is_all or not one.exclusive:
            found.append(one)
            continue
        demand, count, mask = one.alternatives[0]
        place = known.setdefault((demand.kind, mask), len(found))
        if place == len(found):
            found.append(one)
        else:
            other = found[place]
            alternative = (other.alternatives[0][0], other.count + count, mask)
            found[place] = OpenRequest(other.choice_index, [alternative], other.parts + one.parts)
    return found
