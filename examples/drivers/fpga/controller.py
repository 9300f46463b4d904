"""FPGA cards the classic way: the part that gives cards to claims, one for the whole cluster.

What nodes have it reads from their ConfigMaps, what is given stands in the claims. A claim that is allocated
at once gets a card anywhere; one that waits for its pod gets one on the node that the scheduler chose, and
until then the scheduler is told where there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from dray.client.client import Client
from dray.client.connect import connected
from dray.client.places import kind_called
from dray.driver.classic import Allocated, ClassicController, Held, Need, Unavailable
from dray.driver.negotiating import Negotiation
from dray_examples.fpga.driver import NAME, NAMESPACE, Program


class Fpgas(ClassicController):
    """Gives one card to each claim."""

    name = NAME
    parameters = Program

    def __init__(self, client: Client) -> None:
        self._client = client

    async def allocate(self, need: Need, node: str | None, held: Sequence[Held]) -> Allocated | Unavailable:
        free = await self._free(held)
        for name in [node] if node else sorted(free):
            for card in free.get(name, ()):
                return Allocated(name, {"card": card, "bitstream": need.parameters.bitstream})
        return Unavailable(f"no card is free on {node or 'any node'}")

    async def unsuitable_nodes(
        self, need: Need, nodes: Sequence[str], held: Sequence[Held]
    ) -> Collection[str]:
        free = await self._free(held)
        return [name for name in nodes if not free.get(name)]

    async def _free(self, held: Sequence[Held]) -> Mapping[str, list[str]]:
        """The cards that no claim has, by node."""
        taken = {(each.node, each.attributes.get("card")) for each in held}
        told = (await self._client.list(kind_called("ConfigMap"), NAMESPACE)).items
        cards = {each["metadata"]["name"]: each.get("data", {}).get("cards", "") for each in told}
        return {
            node: [card for card in names.split(",") if card and (node, card) not in taken]
            for node, names in cards.items()
        }


async def main() -> None:
    async with connected() as client:
        await Negotiation(client, Fpgas(client)).run()


if __name__ == "__main__":
    asyncio.run(main())
