"""Did you mean: the known name that is nearest to one that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

TYPO = 0.9
"""Long names of one family are alike; only a slip of the pen makes them as alike as this."""


def did_you_mean(name: str, known: Iterable[str], alike: float = 0.7) -> str:
    """`did you mean ...?`, or nothing when no known name is near."""
    candidates = sorted(set(known))
    plain = {_plain(candidate): candidate for candidate in candidates}
    near = plain.get(_plain(name))
    if near is None:
        near = next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=alike)), None)
    return f"did you mean `{near}`?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
