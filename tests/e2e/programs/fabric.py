"""A classic driver for volumes on a fabric: every node that has the label `fabric` reaches all of them.

    python -m tests.e2e.programs.fabric controller
    python -m tests.e2e.programs.fabric --node NODE

Below `FABRIC` is what the fabric has: a folder for each volume, and in `links` a file for each node that is
connected to it. A volume is used by one pod at a time unless its class has `users: -1`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dray.driver import ClassicClaim, ClassicDriver, Ready, run
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
)

NAME = "fabric.acme.com"


class Sharing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What administrators write into a class."""

    users: int = 1


class Volumes(ClassicController):
    """Makes a volume for each claim."""

    name = NAME
    class_parameters = Sharing

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation:
        volume = f"{need.namespace}-{need.name}"
        (_fabric() / volume / "links").mkdir(parents=True, exist_ok=True)
        return ClassicAllocation({"fabric": "main"}, {"volume": volume}, need.class_parameters.users)


class Volume(ClassicDriver):
    """Connects its node with a volume, and shows it to containers."""

    name = NAME
    controller = Volumes

    def prepare(self, claim: ClassicClaim) -> Iterator[Ready]:
        volume = _fabric() / claim.attributes["volume"]
        (volume / "links" / self.node).touch()
        yield Ready(env={"VOLUME": str(volume)})

    def unprepare(self, claim: ClassicClaim) -> None:
        (_fabric() / claim.attributes["volume"] / "links" / self.node).unlink(missing_ok=True)


def _fabric() -> Path:
    return Path(os.environ["FABRIC"])


if __name__ == "__main__":
    run(Volume)
