"""Bipartite assignment: whether every group can get the members it needs, each member once."""

from __future__ import annotations

from collections.abc import Sequence


def has_assignment(wanted: dict[int, int]) -> bool:
    """Whether so many bits can be taken from each mask, each bit once: a matching by augmenting paths."""
    groups = sorted(wanted.items(), key=lambda item: item[0].bit_count())
    given = [0] * len(groups)
    taken = 0
    for number, (mask, count) in enumerate(groups):
        free = mask & ~taken
        while count and free:
            bit = free & -free
            free ^= bit
            given[number] |= bit
            taken |= bit
            count -= 1
        for _ in range(count):
            freed = _augment(groups, given, taken, number)
            if not freed:
                return False
            taken |= freed
    return True


def _augment(groups: Sequence[tuple[int, int]], given: list[int], taken: int, number: int) -> int:
    """Give one more bit to a group, letting others change theirs; the bit that is taken then, or nothing."""
    came_from = {number: (-1, 0)}
    queue = [number]
    for group in queue:
        reach = groups[group][0]
        free = reach & ~taken
        if free:
            bit = free & -free
            passed = bit
            while group != number:
                previous, swapped = came_from[group]
                given[group] = given[group] & ~swapped | passed
                passed, group = swapped, previous
            given[number] |= passed
            return bit
        for other, own in enumerate(given):
            if other not in came_from and own & reach:
                common = own & reach
                came_from[other] = (group, common & -common)
                queue.append(other)
    return 0
