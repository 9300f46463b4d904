"""A driver of CPU core groups, with nearby memory nodes and PCIe roots as list attributes.

A group is near several PCIe roots, a card is on one. A claim for a group and a card with a root in common
gets cores beside the card.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dray.driver import Claim, Device, Driver, Ready, device, run

PCIE_ROOT_ATTRIBUTE: Final = "resource.kubernetes.io/pcieRoot"
CORES_PER_GROUP: Final = 8


class CoreGroup(NamedTuple):
    """Cores that share a cache, with nearby memory nodes and PCIe roots."""

    socket: int
    numa_nodes: tuple[int, ...]
    pcie_roots: tuple[str, ...]


CORE_GROUPS: Final = (
    CoreGroup(0, (0,), ("pci0000:01",)),
    CoreGroup(0, (0, 1), ("pci0000:01", "pci0000:02")),
    CoreGroup(1, (2, 3), ("pci0000:02", "pci0000:03")),
    CoreGroup(1, (3,), ("pci0000:03",)),
)
"""The topology of every node."""


class Cpu(Driver):
    """Four groups of eight cores on two sockets."""

    name = "cpu.example.com"

    def devices(self) -> Iterator[Device]:
        for number, group in enumerate(CORE_GROUPS):
            yield device(
                f"cpu-{number}",
                attributes={
                    "socket": group.socket,
                    "numaNodes": group.numa_nodes,
                    PCIE_ROOT_ATTRIBUTE: group.pcie_roots,
                },
                capacity={"cores": CORES_PER_GROUP},
            )

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        """All containers that use devices of the claim may run on all its cores."""
        numbers = sorted(int(got.device.removeprefix("cpu-")) for got in claim.devices)
        cores = ",".join(
            f"{n * CORES_PER_GROUP}-{n * CORES_PER_GROUP + CORES_PER_GROUP - 1}" for n in numbers
        )
        memory = ",".join(
            str(node) for node in sorted({m for n in numbers for m in CORE_GROUPS[n].numa_nodes})
        )
        for got in claim.devices:
            yield Ready(got, env={"CPU_SET": cores, "CPU_MEMORY_NODES": memory})


if __name__ == "__main__":
    run(Cpu)
