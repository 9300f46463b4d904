"""A vendor's classic driver, both of its parts in one program: units of a card, handed out and wired up.

python -m tests.e2e.programs.vendor manifests --image IMAGE
python -m tests.e2e.programs.vendor controller
python -m tests.e2e.programs.vendor run --node NODE
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dray.driver import ClassicClaim, ClassicDriver, Ready, run
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)


class Wish(msgspec.Struct):
    """What users may write into a claim."""

    speed: str = "slow"


class Cards(ClassicController):
    """One unit for each claim and node."""

    name = "card.example.com"
    parameters = Wish

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> list[str]:
        return [node for node in nodes if any(each.node == node for each in held)]

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        if node is None or any(each.node == node for each in held):
            return NoAllocationAvailable("the card is taken")
        return ClassicAllocation(node, {"speed": need.parameters.speed})


class Card(ClassicDriver):
    """Shows a container what its claim got."""

    name = "card.example.com"
    parameters = Wish
    controller = Cards

    def prepare(self, claim: ClassicClaim) -> list[Ready]:
        return [Ready(env={"CARD_SPEED": claim.attributes["speed"]})]


if __name__ == "__main__":
    run(Card)
