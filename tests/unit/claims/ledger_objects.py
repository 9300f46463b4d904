"""A ledger in a dict, and short words for what is published and allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.json_text import write_json
from dray.claims.ledger import grants, prepared_devices
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.grants import LedgerTransaction
from dray.claims.ledger.published_devices import EMPTY_POOL, PublishedPool, build_published_pool, read_slice
from dray.claims.ledger.rows import (
    COUNTER_PREFIX,
    DEVICE_PREFIX,
    CounterRow,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    build_counter_key,
    build_device_key,
    parse_counter_key,
    parse_device_key,
    read_row,
)
from dray.claims.ledger.stored_claims import StoredResult
from dray.values.quantity import Quantity

DRIVER, POOL = "gpu.example.com", "pool"


def device(name: str, **fields: Any) -> dict[str, Any]:
    """A device as a driver publishes it; `memory=...` is its capacity, `draws=...` what it consumes."""
    found: dict[str, Any] = {"name": name}
    if "memory" in fields:
        found |= {"capacity": {"memory": {"value": fields["memory"]}}}
    if fields.get("shared"):
        found["allowMultipleAllocations"] = True
    if "draws" in fields:
        counters = {name: {"value": value} for name, value in fields["draws"].items()}
        found["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
    return found


def slice_of(
    devices: Sequence[Mapping[str, Any]] = (),
    counters: Mapping[str, str] | None = None,
    generation: int = 1,
    count: int = 1,
    pool: str = POOL,
    node: str = "",
) -> dict[str, Any]:
    """A slice as it is stored; for one node, or for all."""
    spec: dict[str, Any] = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **({"nodeName": node} if node else {"allNodes": True}),
    }
    if devices:
        spec["devices"] = list(devices)
    if counters:
        values = {name: {"value": value} for name, value in counters.items()}
        spec["sharedCounters"] = [{"name": "set", "counters": values}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {}, "spec": spec}


def seen(*slices: Mapping[str, Any]) -> PublishedPool:
    """What is published in these slices, each its own source."""
    return build_published_pool(
        ((f"slice-{i}".encode(), i + 1), read_slice(write_json(slice_))) for i, slice_ in enumerate(slices)
    )


def result(
    name: str, *, share: str | None = None, pool: str = POOL, admin: bool = False, **amounts: str
) -> StoredResult:
    """One result of an allocation."""
    consumed = {capacity: Quantity.parse(amount) for capacity, amount in amounts.items()}
    return StoredResult(
        driver=DRIVER,
        pool=pool,
        device=name,
        admin_access=admin or None,
        share_id=share,
        consumed_capacity=consumed,
    )


def claim(name: str, uid: str = "") -> Holder:
    return Holder(namespace="default", name=name, uid=uid or f"uid-{name}")


class Ledger:
    """Rows in a dict; every change goes through books, as in a server."""

    def __init__(self, *slices: Mapping[str, Any]) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.pool = seen(*slices)

    def publish(self, *slices: Mapping[str, Any]) -> None:
        self.pool = seen(*slices)

    def catalogue(self, pool: tuple[str, str]) -> PublishedPool:
        return self.pool if pool[1] == POOL else EMPTY_POOL

    def _keep(self, books: LedgerTransaction, denied: Sequence[Denial] = ()) -> list[str]:
        ruling = books.build_decision(denied)
        if not denied:
            for key, value in ruling.changes.items():
                if value is None:
                    del self.rows[key]
                else:
                    self.rows[key] = value
        return [denial.message for denial in denied]

    def grant(self, name: str, *results: StoredResult, uid: str = "", node: str = "") -> list[str]:
        """Why not; nothing when it was granted."""
        books = LedgerTransaction(self.rows.get)
        return self._keep(
            books, grants.grant_allocation(books, claim(name, uid), results, self.catalogue, node)
        )

    def release(self, name: str, *results: StoredResult) -> None:
        books = LedgerTransaction(self.rows.get)
        grants.release_claim(books, claim(name).uid, map(grants.get_device_id, results))
        self._keep(books)

    def prepare(self, name: str, node: str, *results: StoredResult, preparation: str = "") -> list[str]:
        books = LedgerTransaction(self.rows.get)
        called = preparation or f"{node}-{name}"
        return self._keep(
            books, prepared_devices.record_preparation(books, called, node, claim(name), results)
        )

    def free(self, preparation: str) -> list[str]:
        books = LedgerTransaction(self.rows.get)
        freed = prepared_devices.release_preparation(books, preparation)
        self._keep(books)
        return [device.device for device in freed]

    def row(self, name: str) -> DeviceRow | None:
        key = build_device_key(DeviceId(DRIVER, POOL, name))
        return read_row(key, self.rows[key]) if key in self.rows else None

    def charged(self, counter: str = "c") -> str:
        key = build_counter_key(CounterSetId(DRIVER, POOL, "set"))
        row: CounterRow = read_row(key, self.rows[key]) if key in self.rows else CounterRow()
        return str(row.charged.get(counter, 0))

    def devices(self) -> list[str]:
        return sorted(parse_device_key(key).device for key in self.rows if key.startswith(DEVICE_PREFIX))

    def counter_sets(self) -> list[str]:
        return sorted(
            parse_counter_key(key).counter_set for key in self.rows if key.startswith(COUNTER_PREFIX)
        )
