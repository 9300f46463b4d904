"""A driver of network cards that many containers share by bandwidth, and of a fabric that every node reaches.

With `--no-node` the driver only publishes the fabric, for the whole cluster; on a node it publishes and
prepares the cards of the node, which are allocated before the fabric because of its lower priority.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from dray.driver import (
    Capacity,
    Claim,
    Device,
    DeviceStatus,
    Driver,
    Got,
    NetworkDeviceData,
    Pool,
    Reach,
    Ready,
    device,
    run,
)

PCIE_ROOTS: Final = ("pci0000:01", "pci0000:02")
PCIE_ROOT_ATTRIBUTE: Final = "resource.kubernetes.io/pcieRoot"
BANDWIDTH: Final = Capacity("10G", default="100M", min="100M", step="100M")


class Nic(Driver):
    """Two cards of 10 Gbit/s on every node, shared in steps of 100 Mbit/s."""

    name = "nic.example.com"

    def __init__(self, node: str = "") -> None:
        self.node = node

    def devices(self) -> Iterator[Device | Pool]:
        if not self.node:
            yield Pool("fabric", [_build_card("fabric0", {})], priority=-1, nodes=Reach.ALL_NODES)
            return
        for number, root in enumerate(PCIE_ROOTS):
            yield _build_card(f"eth{number}", {PCIE_ROOT_ATTRIBUTE: root})

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            name = f"NIC_{got.request.upper().replace('-', '_')}"
            amount = got.consumed.get("bandwidth")
            env = {
                f"{name}_INTERFACE": got.device,
                f"{name}_SHARE": got.share_id,
                f"{name}_BANDWIDTH": "" if amount is None else str(amount),
            }
            yield Ready(got, env=env, status=DeviceStatus(network=_build_network_data(got)))


def _build_card(name: str, attributes: dict[str, str]) -> Device:
    return device(
        name,
        shared=True,
        attributes={"interfaceName": name, **attributes},
        capacity={"bandwidth": BANDWIDTH},
    )


def _build_network_data(got: Got) -> NetworkDeviceData:
    """Derive an address from a share, so that repeated calls return the same one."""
    digest = hashlib.sha256(f"{got.pool}/{got.device}/{got.share_id}".encode()).digest()
    return NetworkDeviceData(
        interface_name=got.device,
        ips=(f"10.{digest[0]}.{digest[1]}.{digest[2] % 254 + 1}/8",),
        hardware_address=":".join(f"{byte:02x}" for byte in (0x02, *digest[3:8])),
    )


if __name__ == "__main__":
    run(Nic)
