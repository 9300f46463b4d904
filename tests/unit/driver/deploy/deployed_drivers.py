"""Drivers of several kinds whose manifests the tests build, and the rights that manifests grant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dray.driver import Claim, ClassicDriver, DeviceStatus, Driver, Ready
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.deploy.objects import DeploymentTarget
from tests.unit.driver.driver_node import Gpu

TARGET = DeploymentTarget("registry.example.com/driver:1")


class Settings(msgspec.Struct):
    """What users may write."""

    size: int = 1


class Told(Gpu):
    """Has a schema and reports about devices."""

    parameters = Settings

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        return [Ready(got, status=DeviceStatus(data={"ok": True})) for got in claim.devices]


class Units(ClassicController):
    """Allocates from the inventory of the nodes."""

    name = "fpga.example.com"

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        assert self.inventory is not None
        taken = [each.node for each in held]
        for name in [node] if node else self.inventory.list_nodes():
            if taken.count(name) < int(self.inventory.get(name).get("units", "0")):
                return ClassicAllocation(name)
        return NoAllocationAvailable("nothing is left")


class Fpga(ClassicDriver):
    """A classic driver with a controller and a schema."""

    name = "fpga.example.com"
    parameters = Settings
    controller = Units


class Plain(Driver):
    """Nothing but devices."""

    name = "a" * 20 + ".example.com"


def granted(documents: Sequence[dict[str, Any]], part: str) -> set[tuple[str, str, str]]:
    """The rights that the roles of a part give."""
    return {
        (verb, group, resource)
        for made in documents
        if made["kind"] in ("ClusterRole", "Role") and made["metadata"]["name"].endswith(f"-{part}")
        for rule in made["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
