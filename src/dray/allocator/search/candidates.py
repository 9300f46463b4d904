"""Which candidates suit a want, found out as far as anybody asked.

Theory of operation: whether a device suits a want (selectors, amounts it could ever give, taints, node
selector) depends on both alone. It is found out per pool (see devicelist) and put together here as masks over
the candidates of a shape. An error on a device nobody reaches is nobody's error: `frontier` is how far the
search looked, and what is known of the devices behind it shows only when the search comes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dray.allocator.checks import taints
from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.inventory.device_lists import suitable_lists
from dray.allocator.refusals import Reason, Refusal
from dray.allocator.requests import Want
from dray.values.cache_bounds import Bound

NOT_YET = -3
"""Instead of a candidate: not all of them are judged yet."""

WANTS = Bound("candidates of wants", 128, "a shape")


class Options:
    """The candidates of one want, as masks over the candidates of a shape.

    `mask` has those that suit, `suiting` also those that match but may not be taken, `faulty` those that
    cannot be judged; all three as far as `first` and `complete` had to look.
    """

    # Not the shape itself: what remembers these options would be a cycle, and wait for the garbage collector.
    __slots__ = (
        "_contents",
        "_judged",
        "_lists",
        "_part",
        "_reaches",
        "_shares",
        "_size",
        "_want",
        "faulty",
        "frontier",
        "mask",
        "suiting",
    )

    def __init__(self, shape: Shape, want: Want) -> None:
        self._contents = shape.contents
        self._reaches = shape.reaches
        self._lists = suitable_lists(shape.lists, want)
        self._want = want
        self._size = len(shape.contents)
        self._part = 0
        self._judged = 0
        self.frontier = 0
        self.mask = 0
        self.suiting = 0
        self.faulty = 0
        self._shares: dict[int, dict[str, int]] = {}

    def first(self, start: int, blocked: int, most: int) -> int:
        """The first unblocked candidate from a place on that suits, or cannot be judged; or -1.

        `NOT_YET` when none was found after judging so many more candidates.
        """
        while True:
            there = (self.mask | self.faulty) & ~blocked
            there = there >> start << start
            if there:
                found = (there & -there).bit_length() - 1
                if found >= self.frontier:
                    self.frontier = found + 1
                return found
            self.frontier = self._judged
            if self._judged == self._size:
                return -1
            if most <= 0:
                return NOT_YET
            most -= self._judge_more()

    def share(self, candidate: int) -> dict[str, int]:
        """What one share of a candidate that suits takes of each capacity."""
        found = self._shares.get(candidate)
        if found is None:
            taken = self._contents[candidate].consumed(self._want.amounts)
            assert not isinstance(taken, Refusal)
            found = self._shares[candidate] = taken
        return found

    def judge_some(self, count: int) -> bool:
        """Judge about so many more candidates at most; whether all of them are judged now."""
        while self._judged < self._size and count > 0:
            count -= self._judge_more()
        self.frontier = self._judged
        return self._judged == self._size

    def complete(self) -> int:
        """The mask of all candidates that suit, all of them judged."""
        self.judge_some(self._size)
        return self.mask

    @property
    def refusals(self) -> Mapping[int, Refusal]:
        """Why candidates do not suit, of all the search looked at."""
        return _Refusals(self)

    def _judge_more(self) -> int:
        """Take what is known of the next pool, or find out more about it; how many devices were judged."""
        if self._part == len(self._lists):
            self._judged = self._size
            return 0
        offset, devices = self._lists[self._part]
        known, judged = devices.judged(self._want, max(self._judged - offset, 0))
        self._judged = offset + known.reach
        self.mask |= known.mask << offset
        self.suiting |= known.suiting << offset
        self.faulty |= known.faulty << offset
        if known.reach == len(devices.contents):
            self._part += 1
        return judged

    def refuse(self, candidate: int) -> Refusal | None:
        """Why a candidate does not suit."""
        if self.mask >> candidate & 1:
            return None
        content, want = self._contents[candidate], self._want
        withheld = content.withheld
        if withheld is Reason.BINDING_CONDITIONS:
            return Refusal(withheld)
        for _owner, expression in want.selectors:
            verdict = content.verdict(expression)
            if verdict is not True:
                reason = Reason.UNSUITED if verdict is False else Reason.BROKEN_SELECTOR
                return Refusal(reason, (expression, verdict))
        consumed = content.consumed(want.amounts) if content.limited or want.amounts else None
        if isinstance(consumed, Refusal):
            return consumed
        if withheld is not None:
            return Refusal(withheld)
        if self._reaches[candidate].is_tangled:
            return Refusal(Reason.NODE_SELECTOR)
        return taints.refuse(content.taints, want.tolerations)


class _Refusals(Mapping[int, Refusal]):
    """The refusals of some options, each put into words when it is asked for."""

    __slots__ = ("_options",)

    def __init__(self, options: Options) -> None:
        self._options = options

    def __getitem__(self, candidate: int) -> Refusal:
        options = self._options
        refusal = options.refuse(candidate) if 0 <= candidate < options.frontier else None
        if refusal is None:
            raise KeyError(candidate)
        return refusal

    def __iter__(self) -> Iterator[int]:
        options = self._options
        return (i for i in range(options.frontier) if not options.mask >> i & 1)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def options_of(shape: Shape, want: Want) -> Options:
    """The options of a want on a shape; wants that ask the same of a device share them."""
    found: Options | None = shape.memo.get(want.key)
    if found is None:
        found = WANTS.keep(shape.memo, want.key, Options(shape, want))
    return found
