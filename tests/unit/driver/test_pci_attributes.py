"""Attributes of PCI devices, read from a sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.driver import device, read_pci_attributes
from dray.errors import InputError

ID = "0000:3b:00.0"


def make_device(sysfs: Path, numa_node: str | None) -> None:
    folder = sysfs / "devices" / "pci0000:3a" / "0000:3a:00.0" / ID
    folder.mkdir(parents=True)
    if numa_node is not None:
        (folder / "numa_node").write_text(numa_node)
    links = sysfs / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    (links / ID).symlink_to(folder)


@pytest.mark.parametrize(
    ("numa_node", "shown"), [("1\n", {"numaNode": 1}), ("-1\n", {}), ("", {}), (None, {})]
)
def test_bus_root_and_numa_node_have_the_names_of_kubernetes(
    numa_node: str | None, shown: dict[str, int], tmp_path: Path
) -> None:
    make_device(tmp_path, numa_node)
    expected = {"pciBusID": ID, "pcieRoot": "pci0000:3a", **shown}
    found = read_pci_attributes(ID, tmp_path)
    assert found == {f"resource.kubernetes.io/{name}": value for name, value in expected.items()}
    device("card", attributes=found)


@pytest.mark.parametrize(
    ("bus_id", "says"), [("../../x", "no PCI bus ID"), ("0000:00:00.0", "there is no PCI device")]
)
def test_what_is_no_device_is_an_error(bus_id: str, says: str, tmp_path: Path) -> None:
    make_device(tmp_path, None)
    with pytest.raises(InputError, match=says):
        read_pci_attributes(bus_id, tmp_path)
