"""The catalogue of all cases, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tests.mutations.case import Case, load_bases
from tests.mutations.metadata_cases import list_metadata_cases
from tests.mutations.object_cases import list_object_cases
from tests.mutations.patch_cases import list_patch_cases
from tests.mutations.request_cases import list_request_cases
from tests.mutations.subresource_cases import list_subresource_cases
from tests.mutations.targeted_cases import list_targeted_cases


@cache
def load_cases() -> tuple[Case, ...]:
    """All cases; ids are unique."""
    return tuple(_list_cases())


def _list_cases() -> Iterator[Case]:
    bases = load_bases()
    for position, base in enumerate(bases):
        yield from list_object_cases(base)
        yield from list_metadata_cases(base, position)
        yield from list_request_cases(base, position)
        yield from list_patch_cases(base, position)
    by_name = {base.name: base for base in bases}
    yield from list_subresource_cases(by_name)
    yield from list_targeted_cases(by_name)
