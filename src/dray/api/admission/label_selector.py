"""Label selectors as fields of an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from dray.api.meta import ApiStruct
from dray.values import label_selectors


class LabelSelectorRequirement(ApiStruct, frozen=True):
    """One condition on one label."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    """Selects objects by their labels; without any condition it selects all."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def matches_labels(selector: LabelSelector | None, candidates: Iterable[Mapping[str, str]]) -> bool:
    """Whether a selector matches one of several sets of labels; an absent selector matches everything."""
    if selector is None or selector == LabelSelector():
        return True
    read = _parse_selector(msgspec.json.encode(selector))
    return any(map(read.matches, candidates))


@lru_cache(maxsize=256)
def _parse_selector(selector: bytes) -> label_selectors.ParsedLabelSelector:
    return label_selectors.ParsedLabelSelector.from_document(msgspec.json.decode(selector))
