"""Wording of suggestions: the known name nearest to an unknown one, names to choose from, articles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_CHOICES = 10
TYPO_SIMILARITY = 0.9
"""Long names of one family are similar; only a typo makes them as similar as this."""


def suggest_name(name: str, known: Iterable[str], min_similarity: float = 0.7) -> str:
    """`did you mean ...?`, or nothing when no known name is similar."""
    candidates = sorted(set(known))
    plain = {_normalize_name(candidate): candidate for candidate in candidates}
    near = plain.get(_normalize_name(name))
    if near is None:
        near = next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=min_similarity)), None)
    return f"did you mean `{near}`?" if near else ""


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def format_choices(names: Iterable[str], otherwise: str) -> str:
    """The names to choose from, when they are few enough to read."""
    choices = sorted(set(names))
    if not choices or len(choices) > _MAX_CHOICES:
        return otherwise
    return ("one of " if len(choices) > 1 else "") + ", ".join(f"`{name}`" for name in choices)


def add_article(noun: str) -> str:
    """`a capacity`, `an attribute`."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
