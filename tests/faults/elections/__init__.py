"""Leaders that are killed, frozen, cut off or retired again and again: never do two of them write (R-18)."""
