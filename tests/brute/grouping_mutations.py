"""More builds that are broken on purpose: mistakes in judging devices by groups."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec

from dray.allocator.inventory import device_lists
from tests.brute.mutations import mistake


@mistake
def devices_that_cannot_be_judged_are_skipped() -> Any:
    return patch.object(device_lists, "FATAL_REASONS", frozenset())


@mistake
def devices_are_grouped_by_nothing() -> Any:
    return patch.object(device_lists, "_read_keys", lambda driver, read, contents: [None] * len(contents))


@mistake
def what_suits_a_want_is_kept_for_too_many_wants() -> Any:
    real = device_lists.DeviceList.evaluate

    def evaluate(devices: Any, alternative: Any, beyond: int) -> Any:
        return real(devices, msgspec.structs.replace(alternative, key=alternative.key[0]), beyond)

    return patch.object(device_lists.DeviceList, "evaluate", evaluate)
