"""The crash points of the claim preparer, by the names it passes to `crash_point`."""

from __future__ import annotations

POINTS = (
    "preparing recorded, not kept",
    "preparing recorded, kept",
    "preparing announced",
    "driver prepared",
    "preparing answered, not kept",
    "preparing answered, kept",
    "unpreparing recorded, not kept",
    "unpreparing recorded, kept",
    "driver unprepared",
    "unpreparing answered, not kept",
    "unpreparing answered, kept",
    "announcement withdrawn",
    "let go, not kept",
    "let go, kept",
)
