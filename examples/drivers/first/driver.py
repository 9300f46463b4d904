"""A first driver: two dice on every node; a container gets the name of its die."""

from __future__ import annotations

from collections.abc import Iterator

from dray.driver import Claim, Device, Driver, Ready, device, run


class Dice(Driver):
    """Dice with six and with twenty sides."""

    name = "dice.example.com"

    def devices(self) -> Iterator[Device]:
        for sides in (6, 20):
            yield device(f"d{sides}", attributes={"sides": sides, "colour": "ivory"})

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            yield Ready(got, env={"DIE": got.device, "DIE_SIDES": got.device.removeprefix("d")})


if __name__ == "__main__":
    run(Dice)
