"""Device prices: proof by scarcity that requests with alternatives cannot all be met (Lagrangian bound).

Theory of operation: each device gets a price. A request pays at least the price of its cheapest alternative,
and all requests together pay no more than all devices cost, because each device is used once. When even the
least that all requests must pay is more, they cannot all be met, whatever the prices are. Good prices are
found by a subgradient method: what too many requests need becomes dearer, what is left over cheaper.
Interchangeable devices cost the same. Prices are integers, so the comparison is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.search.pruning.open_requests import OpenRequest

MAX_ROUNDS = 24
"""How often prices are adjusted before a completion search starts."""

PRICE_UNIT = 1024
"""The initial price of every device."""

MIN_REQUESTS = 3
"""Open requests with alternatives from which on prices are worth their cost."""


class DevicePrices:
    """Prices of classes of devices that are alike."""

    def __init__(self, classes: Sequence[int]) -> None:
        self._classes = classes
        self._priced = 0
        for mask in classes:
            self._priced |= mask
        self._prices = [PRICE_UNIT] * len(classes)
        self._order = list(range(len(classes)))
        self._tuned = False

    def proves_infeasible(self, open_requests: Sequence[OpenRequest]) -> bool:
        """Whether the requests cannot all be met; the first call computes the prices."""
        if sum(len(one.alternatives) > 1 for one in open_requests) < MIN_REQUESTS or len(self._classes) < 2:
            return False
        rounds = 1 if self._tuned else MAX_ROUNDS
        self._tuned = True
        step = PRICE_UNIT // 4
        for turn in range(rounds):
            surplus, used, there = self._compare(open_requests)
            if surplus > 0:
                return True
            if turn + 1 < rounds:
                self._adjust(used, there, max(step // (1 + turn // 4), 8))
        return False

    def _adjust(self, used: list[int], available: list[int], step: int) -> None:
        for number, count in enumerate(used):
            excess = count - available[number]
            self._prices[number] = max(0, self._prices[number] + step * excess // max(available[number], 1))
        self._order.sort(key=self._prices.__getitem__)

    def _compare(self, open_requests: Sequence[OpenRequest]) -> tuple[int, list[int], list[int]]:
        """The excess of what must be paid, the devices the cheapest alternatives use, and those available."""
        classes, prices, order = self._classes, self._prices, self._order
        used = [0] * len(classes)
        union = due = 0
        known: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
        for one in open_requests:
            if not one.exclusive:
                continue
            union |= one.mask
            best: tuple[int, list[tuple[int, int]]] | None = None
            for _demand, count, mask in one.alternatives:
                found = known.get((count, mask))
                if found is None:
                    # What is in no class, such as a shared device, costs nothing and comes first.
                    cost, missing, taken = 0, count - (mask & ~self._priced).bit_count(), []
                    for number in order if missing > 0 else ():
                        here = (mask & classes[number]).bit_count()
                        if here:
                            here = min(here, missing)
                            cost += here * prices[number]
                            taken.append((number, here))
                            missing -= here
                            if not missing:
                                break
                    found = known[count, mask] = (cost, taken) if missing <= 0 else (0, [])
                if best is None or found[0] < best[0]:
                    best = found
            assert best is not None
            due += best[0]
            for number, here in best[1]:
                used[number] += here
        there = [(union & mask).bit_count() for mask in classes]
        worth = sum(price * count for price, count in zip(prices, there, strict=True))
        return due - worth, used, there
