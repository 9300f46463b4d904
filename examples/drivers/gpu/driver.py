"""GPUs: models, cards whole or in parts, health, and sharing in time.

What a card does is made up, so that it runs everywhere; how a driver tells and hands out devices is not. With
`GPU_PARTS=4` every card can be had whole or in quarters. A card is ill while there is a file of its name in
the directory `GPU_ILL`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from dray.driver import Claim, Device, DeviceState, Driver, Pool, Ready, Version, device, run

MODELS: Final = (("a100", 80), ("a100", 80), ("v100", 32))
"""Model and GiB of memory: two of three nodes have big cards."""
CARDS: Final = 4
ROOTS: Final = ("pci0000:01", "pci0000:02")
ROOT: Final = "resource.kubernetes.io/pcieRoot"


class Sharing(msgspec.Struct, frozen=True):
    """How containers that use the same card take turns."""

    strategy: Literal["Exclusive", "TimeSlicing"] = "Exclusive"
    interval: Literal["Short", "Medium", "Long"] = "Medium"


class GpuConfig(msgspec.Struct, frozen=True):
    """What a class or a claim may say about its cards."""

    sharing: Sharing = Sharing()


class Gpu(Driver):
    """Four cards on every node, in two groups on a PCIe root each."""

    name = "gpu.example.com"
    parameters = {"GpuConfig": GpuConfig}
    health_seconds = 0.5

    def __init__(
        self, node: str = "", number: int | None = None, parts: int | None = None, ill: Path | None = None
    ) -> None:
        self.node = node
        self._number = number
        self._parts = int(os.environ.get("GPU_PARTS", "1")) if parts is None else parts
        self._ill = Path(os.environ.get("GPU_ILL", "/nowhere")) if ill is None else ill

    def devices(self) -> Iterator[Device | Pool]:
        cards = [each for card in range(CARDS) for each in self._card(card)]
        if self._parts < 2:
            yield from cards
            return
        # Whole cards and parts of them overlap: all draw from what the card has.
        memory = {"memory": f"{self._memory}Gi"}
        yield Pool(self.node, cards, counters={f"card-{card}": memory for card in range(CARDS)})

    def _card(self, card: int) -> Iterator[Device]:
        yield self._device(f"gpu-{card}", card, self._memory)
        for part in range(self._parts if self._parts > 1 else 0):
            yield self._device(f"gpu-{card}-part-{part}", card, self._memory // self._parts)

    def _device(self, name: str, card: int, memory: int) -> Device:
        return device(
            name,
            attributes={
                "model": self._model,
                "driverVersion": Version.parse("550.54.15"),
                ROOT: ROOTS[card * len(ROOTS) // CARDS],
            },
            capacity={"memory": f"{memory}Gi"},
            draws={f"card-{card}": {"memory": f"{memory}Gi"}} if self._parts > 1 else {},
        )

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            card = got.device.split("-")[1]
            sharing = Sharing() if got.parameters is None else got.parameters.sharing
            env = {f"GPU_DEVICE_{card}": got.device, f"GPU_DEVICE_{card}_SHARING": sharing.strategy}
            if sharing.strategy == "TimeSlicing":
                env[f"GPU_DEVICE_{card}_INTERVAL"] = sharing.interval
            yield Ready(got, env=env)

    def health(self) -> Iterator[DeviceState]:
        for each in (each for card in range(CARDS) for each in self._card(card)):
            ill = (self._ill / each.name).exists()
            yield DeviceState(each.name, not ill, "too hot" if ill else "")

    @property
    def _model(self) -> str:
        return self._kind[0]

    @property
    def _memory(self) -> int:
        return self._kind[1]

    @property
    def _kind(self) -> tuple[str, int]:
        """Every third node has small cards, by the number in its name."""
        ending = re.search(r"\d+$", self.node)
        number = self._number if self._number is not None else int(ending[0]) if ending else 0
        return MODELS[number % len(MODELS)]


if __name__ == "__main__":
    run(Gpu)
