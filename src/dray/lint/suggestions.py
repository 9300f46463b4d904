"""Did you mean: the known name that is nearest to one that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

TYPO_SIMILARITY = 0.9
"""Long names of one family are alike; only a slip of the pen makes them as alike as this."""


def suggest_name(name: str, known: Iterable[str], min_similarity: float = 0.7) -> str:
    """`did you mean ...?`, or nothing when no known name is near."""
    candidates = sorted(set(known))
    plain = {_normalize_name(candidate): candidate for candidate in candidates}
    near = plain.get(_normalize_name(name))
    if near is None:
        near = next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=min_similarity)), None)
    return f"did you mean `{near}`?" if near else ""


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
