"""A driver of the kit whose devices are told by whoever starts it, and which tells containers what they got.

`STOCK` is JSON: the name of the driver, and pools of slices of devices as `dray.driver.device` takes them. A
container has, for each of its requests, `<DRIVER>_<REQUEST>_DEVICES`, `_MODELS`, `_POOLS`, `_ALTERNATIVE`,
`_SHARES` and `_BANDWIDTH`, with a word for each device; `<DRIVER>` is the first part of the driver's name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

from dray.driver import Capacity, Claim, Device, Driver, Got, Pool, Reach, Ready, Slice, device, run

STOCK: Final[dict[str, Any]] = json.loads(os.environ["STOCK"])
MODELS: Final = {
    each["name"]: each["attributes"]["model"]
    for pool in STOCK["pools"]
    for each in pool.get("devices", [])
    if "model" in each.get("attributes", {})
}


class Stock(Driver):
    """Whatever `STOCK` says."""

    name = STOCK["driver"]

    def devices(self) -> Iterator[Pool]:
        for pool in STOCK["pools"]:
            slices = [
                Slice(map(_device, part["devices"]), part.get("priority")) for part in pool.get("slices", [])
            ]
            loose = map(_device, pool.get("devices", []))
            nodes = Reach.ALL_NODES if pool.get("everywhere") else None
            name = pool.get("name", self.node)
            yield Pool(name, [*loose, *slices], priority=pool.get("priority"), nodes=nodes)

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            yield Ready(got, env=self._words([each for each in claim.devices if each.request == got.request]))

    def _words(self, request: list[Got]) -> dict[str, str]:
        """What a container is told about a request; the same by each of its devices."""
        told = {
            "DEVICES": [got.device for got in request],
            "MODELS": [MODELS.get(got.device, "-") for got in request],
            "POOLS": [got.pool for got in request],
            "ALTERNATIVE": list({got.subrequest for got in request}),
            "SHARES": [got.share_id for got in request if got.share_id],
            "BANDWIDTH": [str(amount) for got in request for amount in got.consumed.values()],
        }
        name = f"{self.name.split('.')[0]}_{request[0].request}".upper().replace("-", "_")
        return {f"{name}_{key}": " ".join(words) for key, words in told.items()}


def _device(told: dict[str, Any]) -> Device:
    capacity = {
        name: Capacity(**amount) if isinstance(amount, dict) else amount
        for name, amount in told.get("capacity", {}).items()
    }
    attributes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told.get("attributes", {}).items()
    }
    return device(told["name"], attributes=attributes, capacity=capacity, shared=told.get("shared", False))


if __name__ == "__main__":
    run(Stock)
