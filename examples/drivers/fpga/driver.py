"""FPGA cards the classic way: the bitstream of a claim is loaded before a workload starts, and wiped after
it.

This is the part on the node. A card is a directory under `FPGA_CARDS`: `bitstream` is what is loaded,
`memory` is what workloads write. Which cards the node has is told in a ConfigMap of its own, named after the
node, for the controller to read. The node and the way to the server come from `NODE_NAME` and `KUBECONFIG`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dray.client.changes import Apply
from dray.client.connect import connected
from dray.client.places import kind_called
from dray.driver import ClassicClaim, ClassicDriver, Ready, run

NAME: Final = "fpga.example.com"
NAMESPACE: Final = "fpga-system"
CARDS: Final = ("card-0", "card-1")


class Program(msgspec.Struct, frozen=True):
    """What a user writes into a claim."""

    bitstream: str


class Fpga(ClassicDriver):
    """Cards that are loaded and wiped."""

    name = NAME
    parameters = Program

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
    async with connected() as client:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": node, "namespace": NAMESPACE},
            "data": {"cards": ",".join(CARDS)},
        }
        change = Apply(document, NAME, force=True)
        await client.patch(kind_called("ConfigMap"), node, change, NAMESPACE)


if __name__ == "__main__":
    asyncio.run(announce(os.environ["NODE_NAME"]))
    run(Fpga)
