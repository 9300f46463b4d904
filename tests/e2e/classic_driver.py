"""The controller of a classic driver (KEP-3063) as a program: units on nodes, handed out claim by claim.

    python -m tests.e2e.classic_driver --driver acme.example.com --capacity node-a=2,node-b=1

What is taken where stands in the claims themselves (`status.attributes`), so a controller that was killed
goes on where the claims are. Phases, finalizers and retries are those of the kit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dray.client.client import Client
from dray.client.connect import connect
from dray.driver.classic.controller import (
    NODE_ATTRIBUTE,
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.classic.controller_service import ClassicControllerService


@dataclass(frozen=True)
class Ways:
    """What this driver is called, what it has where, and whether its units can be reached from elsewhere."""

    driver: str
    capacity: Mapping[str, int]
    everywhere: bool = False


class Units(ClassicController):
    """Units on nodes, any of which will do for any claim."""

    def __init__(self, ways: Ways) -> None:
        self.name = ways.driver
        self._ways = ways

    def _free(self, held: Sequence[HeldClaim]) -> Counter[str]:
        taken = Counter(each.node for each in held)
        return Counter({name: units - taken[name] for name, units in self._ways.capacity.items()})

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> set[str]:
        free = self._free(held)
        return {name for name in nodes if free[name] <= 0}

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        """The parameters of the administrator and of the user arrive apart, and stay with the claim."""
        free = self._free(held)
        here = node or next((name for name in sorted(free) if free[name] > 0), None)
        if here is None or free[here] <= 0:
            return NoAllocationAvailable("all units are taken")
        ours = need.class_parameters or {}
        attributes = {
            NODE_ATTRIBUTE: here,
            "classParameters": json.dumps(ours, separators=(",", ":")),
            "claimParameters": json.dumps(need.parameters or {}, separators=(",", ":")),
        }
        return ClassicAllocation(
            None if self._ways.everywhere else here, attributes, ours.get("userLimit", 1)
        )


class Controller(ClassicControllerService):
    """Keeps the claims of one driver as they should be."""

    def __init__(self, client: Client, ways: Ways) -> None:
        super().__init__(client, Units(ways))


def _capacity(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(units) for name, _, units in pairs}


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--driver", required=True)
    parser.add_argument("--capacity", required=True, type=_capacity)
    parser.add_argument("--everywhere", action="store_true", help="units can be used from every node")
    given = parser.parse_args()
    async with connect(given.kubeconfig) as client, asyncio.TaskGroup() as tasks:
        controller = Controller(client, Ways(given.driver, given.capacity, given.everywhere))
        tasks.create_task(controller.run())
        await controller.ready.wait()
        print(f"{given.driver} is ready", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
