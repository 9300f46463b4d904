"""A ledger in a dict, and short words for what is published and allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.json_text import write_json
from dray.claims.ledger import grants, prepared_devices
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.grants import Books
from dray.claims.ledger.published_devices import NOWHERE, Published, published, read_slice
from dray.claims.ledger.rows import (
    COUNTERS,
    DEVICES,
    CounterRow,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    counter_key,
    counter_set_at,
    device_at,
    device_key,
    read_row,
)
from dray.claims.ledger.stored_claims import SeenResult
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


def seen(*slices: Mapping[str, Any]) -> Published:
    """What is published in these slices, each its own source."""
    return published(
        ((f"slice-{i}".encode(), i + 1), read_slice(write_json(slice_))) for i, slice_ in enumerate(slices)
    )


def result(
    name: str, *, share: str | None = None, pool: str = POOL, admin: bool = False, **amounts: str
) -> SeenResult:
    """One result of an allocation."""
    consumed = {capacity: Quantity.parse(amount) for capacity, amount in amounts.items()}
    return SeenResult(
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

    def catalogue(self, pool: tuple[str, str]) -> Published:
        return self.pool if pool[1] == POOL else NOWHERE

    def _keep(self, books: Books, denied: Sequence[Denial] = ()) -> list[str]:
        ruling = books.ruling(denied)
        if not denied:
            for key, value in ruling.changes.items():
                if value is None:
                    del self.rows[key]
                else:
                    self.rows[key] = value
        return [denial.message for denial in denied]

    def grant(self, name: str, *results: SeenResult, uid: str = "", node: str = "") -> list[str]:
        """Why not; nothing when it was granted."""
        books = Books(self.rows.get)
        return self._keep(books, grants.grant(books, claim(name, uid), results, self.catalogue, node))

    def release(self, name: str, *results: SeenResult) -> None:
        books = Books(self.rows.get)
        grants.release(books, claim(name).uid, map(grants.device_of, results))
        self._keep(books)

    def prepare(self, name: str, node: str, *results: SeenResult, preparation: str = "") -> list[str]:
        books = Books(self.rows.get)
        called = preparation or f"{node}-{name}"
        return self._keep(books, prepared_devices.prepare(books, called, node, claim(name), results))

    def free(self, preparation: str) -> list[str]:
        books = Books(self.rows.get)
        freed = prepared_devices.free(books, preparation)
        self._keep(books)
        return [device.device for device in freed]

    def row(self, name: str) -> DeviceRow | None:
        key = device_key(DeviceId(DRIVER, POOL, name))
        return read_row(key, self.rows[key]) if key in self.rows else None

    def charged(self, counter: str = "c") -> str:
        key = counter_key(CounterSetId(DRIVER, POOL, "set"))
        row: CounterRow = read_row(key, self.rows[key]) if key in self.rows else CounterRow()
        return str(row.charged.get(counter, 0))

    def devices(self) -> list[str]:
        return sorted(device_at(key).device for key in self.rows if key.startswith(DEVICES))

    def counter_sets(self) -> list[str]:
        return sorted(counter_set_at(key).counter_set for key in self.rows if key.startswith(COUNTERS))
