"""Published pools: like devices share their amounts, and only pools of several slices keep them decoded."""

from __future__ import annotations

import gc
from typing import Any

from dray.api.json_text import write_json
from dray.claims.ledger.published_devices import Source, StoredSlice, read_slice
from dray.claims.ledger.published_pools import PublishedPoolIndex
from dray.values.quantity import Quantity
from tests.unit.claims.ledger_objects import DRIVER, POOL, device, seen, slice_of


class CountedDecoder:
    """Decodes slices, and keeps which."""

    def __init__(self) -> None:
        self.decoded: list[bytes] = []

    def __call__(self, value: bytes) -> StoredSlice:
        self.decoded.append(value)
        return read_slice(value)


def publish(index: PublishedPoolIndex[bytes], source: Source, document: dict[str, Any]) -> bytes:
    value = write_json(document)
    index.put((DRIVER, POOL), source, value)
    return value


def test_devices_with_the_same_capacities_share_them() -> None:
    pool = seen(
        slice_of([device("a", memory="40Gi"), device("b", memory="40Gi"), device("c", memory="80Gi")])
    )
    assert pool.devices["a"].capacity is pool.devices["b"].capacity
    assert pool.devices["c"].capacity == {"memory": Quantity.parse("80Gi")}


def test_equal_amounts_in_other_forms_stay_as_they_are_written() -> None:
    pool = seen(slice_of([device("a", memory="1Ki"), device("b", memory="1024")]))
    assert [str(pool.devices[name].capacity["memory"]) for name in "ab"] == ["1Ki", "1024"]


def test_garbage_collection_does_not_visit_published_devices() -> None:
    pool = seen(slice_of([device("a", memory="40Gi")]))
    assert not gc.is_tracked(pool.devices["a"])


def test_a_changed_slice_of_a_large_pool_decodes_itself_only() -> None:
    decode = CountedDecoder()
    index = PublishedPoolIndex(decode)
    publish(index, (b"one", 1), slice_of([device("a")], count=2))
    publish(index, (b"two", 2), slice_of([device("b")], count=2))
    assert set(index((DRIVER, POOL)).devices) == {"a", "b"}
    decode.decoded.clear()
    index.remove((DRIVER, POOL), (b"two", 2))
    changed = publish(index, (b"two", 3), slice_of([device("c")], count=2))
    assert set(index((DRIVER, POOL)).devices) == {"a", "c"}
    assert decode.decoded == [changed]


def test_the_only_slice_of_a_pool_is_decoded_once_per_version() -> None:
    decode = CountedDecoder()
    index = PublishedPoolIndex(decode)
    publish(index, (b"one", 1), slice_of([device("a")]))
    assert index((DRIVER, POOL)) is index((DRIVER, POOL))
    assert len(decode.decoded) == 1
