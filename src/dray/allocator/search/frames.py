"""Search frames: one point of the search, its candidates, how far they were tried, and the result."""

from __future__ import annotations

from dray.allocator.refusals import Refusal
from dray.allocator.requests import RequestAlternative, RequestChoice
from dray.allocator.search.candidates import CandidateSet
from dray.allocator.search.pruning import KnownCompletion
from dray.allocator.search.trace import SearchPoint

NO_CANDIDATE = -1
"""Instead of a candidate: none is left."""

NO_DEVICE_NEEDED = -2
"""Instead of a candidate: the alternative needs none."""


class SearchFrame:
    """A point of the search: its candidates, how far they were tried, and the result."""

    __slots__ = (
        "allowed",
        "alternative",
        "alternative_index",
        "blocker",
        "candidates",
        "choice",
        "completion",
        "count",
        "cursor",
        "device_index",
        "devices_before",
        "first_position",
        "is_checked",
        "is_counted",
        "mark",
        "refused",
        "taken",
    )

    def __init__(
        self,
        choice: RequestChoice,
        alternative_index: int,
        candidates: CandidateSet,
        mark: int,
        devices_before: int,
    ) -> None:
        alternative = choice.alternatives[alternative_index]
        self.choice = choice
        self.alternative_index = alternative_index
        self.alternative: RequestAlternative = alternative
        self.candidates = candidates
        self.mark = mark
        self.devices_before = devices_before
        self.count = candidates.matching.bit_count() if alternative.takes_all else alternative.count
        self.is_counted = True
        self.device_index = self.cursor = self.first_position = 0
        self.allowed = -1
        self.is_checked = False
        self.completion: KnownCompletion | None = None
        self.taken = NO_CANDIDATE
        self.blocker: Refusal | None = None
        self.refused: list[tuple[int, Refusal]] = []

    def build_next(self, mark: int) -> SearchFrame:
        """The frame for the next device of the same alternative."""
        frame = SearchFrame(
            self.choice, self.alternative_index, self.candidates, mark, self.devices_before + 1
        )
        frame.device_index = self.device_index + 1
        frame.cursor = frame.first_position = self.cursor
        return frame

    @property
    def point(self) -> SearchPoint:
        return SearchPoint(self.choice, self.alternative, self.device_index)
