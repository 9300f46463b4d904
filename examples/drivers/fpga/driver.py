"""A driver of FPGA cards for classic claims: loads the bitstream of a claim, and wipes the card afterwards.

One module, two programs. On a node it loads and wipes cards: a card is a directory under `FPGA_CARDS` with
the files `bitstream` and `memory`, and the inventory of the node is a config map of its name. As `controller`
it allocates cards to claims: it reads the inventory, and the claims contain the allocations. A claim with
immediate allocation gets a card on any node; for other claims the controller reports nodes without a free
card.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dray.client.connect import connect
from dray.driver import ClassicClaim, ClassicDriver, Ready, run
from dray.driver.classic import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.classic.inventory import publish_inventory

NAME: Final = "fpga.example.com"
NAMESPACE: Final = "fpga-system"
CARDS: Final = ("card-0", "card-1")


class FpgaConfig(msgspec.Struct, frozen=True):
    """The parameters of a claim."""

    bitstream: str


class FpgaController(ClassicController):
    """Allocates one card to each claim."""

    name = NAME
    parameters = FpgaConfig

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        free = self._find_free_cards(held)
        for name in [node] if node else sorted(free):
            for card in free.get(name, ()):
                return ClassicAllocation(name, {"card": card})
        return NoAllocationAvailable(f"no card is free on {node or 'any node'}")

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> Collection[str]:
        free = self._find_free_cards(held)
        return [name for name in nodes if not free.get(name)]

    def _find_free_cards(self, held: Sequence[HeldClaim]) -> Mapping[str, list[str]]:
        """Return the cards that no claim has, by node."""
        assert self.inventory is not None, "run the controller with --inventory"
        taken = {(each.node, each.attributes.get("card")) for each in held}
        return {
            node: [
                card
                for card in self.inventory.get(node).get("cards", "").split(",")
                if card and (node, card) not in taken
            ]
            for node in self.inventory.list_nodes()
        }


class Fpga(ClassicDriver):
    """Loads and wipes cards."""

    name = NAME
    parameters = FpgaConfig
    controller = FpgaController

    def __init__(self, cards: Path | None = None) -> None:
        self._cards = cards or Path(os.environ.get("FPGA_CARDS", "fpga-cards")).absolute()

    def prepare(self, claim: ClassicClaim) -> Iterator[Ready]:
        card = self._cards / claim.attributes["card"]
        card.mkdir(parents=True, exist_ok=True)
        (card / "bitstream").write_text(claim.parameters.bitstream)
        (card / "memory").touch()
        yield Ready(env={"FPGA_CARD": card.name, "FPGA_MEMORY": str(card / "memory")})

    def unprepare(self, claim: ClassicClaim) -> None:
        """Wipe the card, so that the next workload finds nothing; a second call does no harm."""
        card = self._cards / claim.attributes.get("card", "none")
        for name in ("memory", "bitstream"):
            (card / name).unlink(missing_ok=True)


async def publish_cards(node: str) -> None:
    """Publish the inventory of this node."""
    async with connect() as client:
        await publish_inventory(client, NAME, NAMESPACE, node, {"cards": ",".join(CARDS)})


if __name__ == "__main__":
    if len(sys.argv) == 1:  # on a node, which comes from NODE_NAME
        asyncio.run(publish_cards(os.environ["NODE_NAME"]))
    run(Fpga)
