"""A driver of simulated GPUs: models, cards as a whole or in partitions, health, and time slicing.

The cards are simulated, so that the driver runs everywhere; it publishes and prepares devices like a real
one. With `GPU_PARTS=4` every card is published as a whole and in quarters. A card is unhealthy while a file
of its name exists in the directory `GPU_ILL`.
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
CARDS_PER_NODE: Final = 4
PCIE_ROOTS: Final = ("pci0000:01", "pci0000:02")
PCIE_ROOT_ATTRIBUTE: Final = "resource.kubernetes.io/pcieRoot"


class Sharing(msgspec.Struct, frozen=True):
    """How containers that use the same card share it."""

    strategy: Literal["Exclusive", "TimeSlicing"] = "Exclusive"
    interval: Literal["Short", "Medium", "Long"] = "Medium"


class GpuConfig(msgspec.Struct, frozen=True):
    """The parameters of classes and claims."""

    sharing: Sharing = Sharing()


class Gpu(Driver):
    """Four cards on every node, in two groups on a PCIe root each."""

    name = "gpu.example.com"
    parameters = {"GpuConfig": GpuConfig}
    health_seconds = 0.5

    def __init__(
        self,
        node: str = "",
        node_number: int | None = None,
        parts: int | None = None,
        unhealthy_dir: Path | None = None,
    ) -> None:
        self.node = node
        self._node_number = node_number
        self._parts = int(os.environ.get("GPU_PARTS", "1")) if parts is None else parts
        self._unhealthy_dir = (
            Path(os.environ.get("GPU_ILL", "/nowhere")) if unhealthy_dir is None else unhealthy_dir
        )

    def devices(self) -> Iterator[Device | Pool]:
        cards = [each for card in range(CARDS_PER_NODE) for each in self._build_card_devices(card)]
        if self._parts < 2:
            yield from cards
            return
        # Cards and their partitions overlap: all consume the counters of the card.
        memory = {"memory": f"{self._memory}Gi"}
        yield Pool(self.node, cards, counters={f"card-{card}": memory for card in range(CARDS_PER_NODE)})

    def _build_card_devices(self, card: int) -> Iterator[Device]:
        yield self._build_device(f"gpu-{card}", card, self._memory)
        for part in range(self._parts if self._parts > 1 else 0):
            yield self._build_device(f"gpu-{card}-part-{part}", card, self._memory // self._parts)

    def _build_device(self, name: str, card: int, memory: int) -> Device:
        return device(
            name,
            attributes={
                "model": self._model,
                "driverVersion": Version.parse("550.54.15"),
                PCIE_ROOT_ATTRIBUTE: PCIE_ROOTS[card * len(PCIE_ROOTS) // CARDS_PER_NODE],
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
        for each in (each for card in range(CARDS_PER_NODE) for each in self._build_card_devices(card)):
            unhealthy = (self._unhealthy_dir / each.name).exists()
            yield DeviceState(each.name, not unhealthy, "too hot" if unhealthy else "")

    @property
    def _model(self) -> str:
        return self._model_and_memory[0]

    @property
    def _memory(self) -> int:
        return self._model_and_memory[1]

    @property
    def _model_and_memory(self) -> tuple[str, int]:
        """Every third node has small cards, by the number in its name."""
        ending = re.search(r"\d+$", self.node)
        number = self._node_number if self._node_number is not None else int(ending[0]) if ending else 0
        return MODELS[number % len(MODELS)]


if __name__ == "__main__":
    run(Gpu)
