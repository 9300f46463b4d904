"""The names that driver authors import: those in use, and the older ones that keep working."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

import dray.driver
from dray.driver import classic, conformance, inventory, testing
from dray.driver.classic.inventory import ClassicInventory, publish_inventory
from dray.driver.conformance import ConformanceReport, ConformanceResult, ConformanceVerdict

OLDER_IMPORTS = {
    "dray.driver": """
        Allocated BadDevice Capacity Claim ClassicClaim ClassicController ClassicDriver Condition Consumer
        Device DeviceNode DeviceState DeviceStatus Driver FieldDropped Got HealthyDriver Held Hook Kit
        KitChoices Mount Need NetworkDeviceData Pool PoolTaken Publisher Quantity Reach Ready Setting Slice
        Unavailable Version device run
    """,
    "dray.driver.classic": "Allocated ClassicController Held Need Unavailable",
    "dray.driver.devices": "Capacity Pool Reach Slice device",
    "dray.driver.base": "Claim ClassicClaim ClassicDriver Driver Got Ready Setting",
    "dray.driver.inventory": "Inventory tell",
    "dray.driver.testing": "CHECKS Choices Outcome Report Verdict examine",
}
"""What drivers could import from the kit before its modules were grouped into packages."""

RENAMED = {
    "Allocated": "ClassicAllocation",
    "BadDevice": "InvalidDeviceError",
    "FieldDropped": "FieldDroppedError",
    "Held": "HeldClaim",
    "Kit": "DriverService",
    "KitChoices": "DriverServiceOptions",
    "Need": "ClassicClaimRequest",
    "PoolTaken": "PoolConflictError",
    "Unavailable": "NoAllocationAvailable",
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in OLDER_IMPORTS.items() for name in names.split()]
)
def test_an_older_import_still_works(module, name):
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("older", "current"), RENAMED.items())
def test_an_older_name_is_the_same_object(older, current):
    assert getattr(dray.driver, older) is getattr(dray.driver, current)
    assert {older, current} <= set(dray.driver.__all__)


@pytest.mark.parametrize("older", [older for older in RENAMED if older in classic.__all__])
def test_the_classic_package_has_the_names_of_the_kit(older):
    assert getattr(classic, older) is getattr(dray.driver, older)


def test_every_exported_name_exists():
    for module in (dray.driver, classic, conformance, inventory, testing):
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert not missing, f"{module.__name__} exports {missing} and has no such name"


def test_the_older_inventory_is_the_one_of_the_classic_package():
    assert inventory.tell is publish_inventory
    assert inventory.Inventory is ClassicInventory
    assert (ClassicInventory.on, ClassicInventory.nodes) == (
        ClassicInventory.get,
        ClassicInventory.list_nodes,
    )


@pytest.mark.parametrize("verdict", [ConformanceVerdict.YES, ConformanceVerdict.NO])
def test_a_conformance_report_has_its_older_attributes(verdict):
    results = (ConformanceResult("registers", verdict),)
    report = ConformanceReport("gpu.example.com", ("v1",), "node-a", results)
    assert report.outcomes is report.results
    assert report.is_good is report.is_conformant is (verdict is ConformanceVerdict.YES)


def test_the_older_entry_point_runs_the_suite(monkeypatch):
    calls = []

    async def record(client, options, track):
        calls.append((client, options, track))
        return "report"

    monkeypatch.setattr(testing, "run_conformance", record)
    choices = testing.Choices(Path("driver.sock"))
    client: Any = "client"
    report: Any = asyncio.run(testing.examine(client, choices, tracking=list))
    assert report == "report"
    assert calls == [("client", choices, list)]
