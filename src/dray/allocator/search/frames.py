"""A frame of the search: one point of the walk, what is tried there, how far, and what came of it."""

from __future__ import annotations

from dray.allocator.refusals import Refusal
from dray.allocator.requests import Choice, Want
from dray.allocator.search.candidates import Options
from dray.allocator.search.pruning import Witness
from dray.allocator.search.trace import Point

NOTHING = -1
"""Instead of a candidate: there is none."""

NO_DEVICE_NEEDED = -2
"""Instead of a candidate: none is asked for."""


class Frame:
    """A point of the walk: what is tried there, how far, and what came of it."""

    __slots__ = (
        "allowed",
        "alternative",
        "before",
        "choice",
        "count",
        "cursor",
        "lacking",
        "mark",
        "nth",
        "options",
        "refused",
        "settled",
        "sized",
        "start",
        "taken",
        "want",
        "witness",
    )

    def __init__(self, choice: Choice, alternative: int, options: Options, mark: int, before: int) -> None:
        want = choice.wants[alternative]
        self.choice = choice
        self.alternative = alternative
        self.want: Want = want
        self.options = options
        self.mark = mark
        self.before = before
        self.count = options.suiting.bit_count() if want.wants_all else want.count
        self.sized = True
        self.nth = self.cursor = self.start = 0
        self.allowed = -1
        self.settled = False
        self.witness: Witness | None = None
        self.taken = NOTHING
        self.lacking: Refusal | None = None
        self.refused: list[tuple[int, Refusal]] = []

    def following(self, mark: int) -> Frame:
        """The frame for the next device of the same want."""
        frame = Frame(self.choice, self.alternative, self.options, mark, self.before + 1)
        frame.nth = self.nth + 1
        frame.cursor = frame.start = self.cursor
        return frame

    @property
    def point(self) -> Point:
        return Point(self.choice, self.want, self.nth)
