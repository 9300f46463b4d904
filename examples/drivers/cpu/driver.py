"""Groups of CPU cores, with the memory nodes and the PCIe roots that are near: attributes that are lists.

A group is near several PCIe roots, a card is on one. A claim that wants a group and a card with a root in
common gets cores beside the card.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dray.driver import Claim, Device, Driver, Ready, device, run

ROOT: Final = "resource.kubernetes.io/pcieRoot"
CORES: Final = 8


class Group(NamedTuple):
    """Cores that share a cache, and what is near."""

    socket: int
    memory: tuple[int, ...]
    roots: tuple[str, ...]


GROUPS: Final = (
    Group(0, (0,), ("pci0000:01",)),
    Group(0, (0, 1), ("pci0000:01", "pci0000:02")),
    Group(1, (2, 3), ("pci0000:02", "pci0000:03")),
    Group(1, (3,), ("pci0000:03",)),
)
"""The topology of every node."""


class Cpu(Driver):
    """Four groups of eight cores on two sockets."""

    name = "cpu.example.com"

    def devices(self) -> Iterator[Device]:
        for number, group in enumerate(GROUPS):
            yield device(
                f"cpu-{number}",
                attributes={"socket": group.socket, "numaNodes": group.memory, ROOT: group.roots},
                capacity={"cores": CORES},
            )

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        """All containers that use devices of the claim may run on all its cores."""
        numbers = sorted(int(got.device.removeprefix("cpu-")) for got in claim.devices)
        cores = ",".join(f"{n * CORES}-{n * CORES + CORES - 1}" for n in numbers)
        memory = ",".join(str(node) for node in sorted({m for n in numbers for m in GROUPS[n].memory}))
        for got in claim.devices:
            yield Ready(got, env={"CPU_SET": cores, "CPU_MEMORY_NODES": memory})


if __name__ == "__main__":
    run(Cpu)
