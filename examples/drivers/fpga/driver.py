"""FPGA cards the classic way: the bitstream of a claim is loaded before a workload starts, and wiped after
it.

Two programs of one module. On a node it loads and wipes cards: a card is a directory under `FPGA_CARDS`,
`bitstream` is what is loaded, `memory` is what workloads write. Which cards the node has it tells in a config
map of the node's name. As `controller` it gives cards to claims: it reads what nodes have, and what is given
stands in the claims. A claim that is allocated at once gets a card anywhere; for one that waits for its pod
the scheduler is told where there is none.
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
from dray.driver.classic.controller import (
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
    """What a user writes into a claim."""

    bitstream: str


class FpgaController(ClassicController):
    """Gives one card to each claim."""

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
        """The cards that no claim has, by node."""
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
    """Cards that are loaded and wiped."""

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
        """Nothing of one workload is there for the next; done twice it does no harm."""
        card = self._cards / claim.attributes.get("card", "none")
        for name in ("memory", "bitstream"):
            (card / name).unlink(missing_ok=True)


async def announce(node: str) -> None:
    """Tell the controller which cards this node has."""
    async with connect() as client:
        await publish_inventory(client, NAME, NAMESPACE, node, {"cards": ",".join(CARDS)})


if __name__ == "__main__":
    if len(sys.argv) == 1:  # on a node, which comes from NODE_NAME
        asyncio.run(announce(os.environ["NODE_NAME"]))
    run(Fpga)
