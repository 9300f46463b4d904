"""The attributes of a PCI device that all drivers name alike, read from sysfs.

Drivers that publish them under these names can be combined: a claim may ask for a GPU and a network card with
the same `numaNode` or on the same `pcieRoot`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dray.driver.devices import Attribute
from dray.errors import InputError

PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_SYSFS: Final = Path("/sys")
_BUS_ID: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


def read_pci_attributes(bus_id: str, sysfs: Path = _SYSFS) -> dict[str, Attribute]:
    """Read the attributes of a PCI device such as `0000:3b:00.0`.

    `numaNode` is left out for a device that belongs to no NUMA node, because such devices are not near each
    other. Raises `InputError` when there is no such device.
    """
    if not _BUS_ID.fullmatch(bus_id):
        raise InputError(f"`{bus_id}` is no PCI bus ID; expected one like `0000:3b:00.0`")
    link = sysfs / "bus" / "pci" / "devices" / bus_id
    if not link.exists():
        raise InputError(f"there is no PCI device `{bus_id}` in `{link.parent}`")
    attributes: dict[str, Attribute] = {PCI_BUS_ID: bus_id}
    root = next((part for part in link.resolve().parts if _ROOT.fullmatch(part)), None)
    if root is not None:
        attributes[PCIE_ROOT] = root
    numa_node = _read_number(link / "numa_node")
    if numa_node is not None and numa_node >= 0:
        attributes[NUMA_NODE] = numa_node
    return attributes


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
