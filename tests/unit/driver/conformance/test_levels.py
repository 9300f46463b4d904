"""Required and advised: drivers within the protocol pass what is required, and their files stay theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.driver.conformance import (
    CHECKS,
    ConformanceLevel,
    ConformanceOptions,
    ConformanceReport,
    ConformanceVerdict,
    run_conformance,
)
from tests.contract.kitted import short_folder
from tests.contract.servers import reaching
from tests.unit.driver.conformance.library_drivers import (
    OneFileForAll,
    OnlyInMemory,
    OnTheLibrary,
    WritesYaml,
)
from tests.unit.driver.conformance.reference_driver import Plain, slices

LIBRARY_FAILS = {"error-entries", "batch-mixed", "held-device", "late-prepare", "restart-held"}
WITHOUT_HEALTH = {"health-report"}


def examine(
    driver_class: type[Plain], folder: Path, *only: str, can_restart: bool = True
) -> tuple[ConformanceReport, Plain]:
    async def run() -> tuple[ConformanceReport, Plain]:
        async with reaching("inside", folder) as reach:
            client = reach.client()
            await client.create(slices(3))
            driver = driver_class(folder, reach.client())
            await driver.start()
            try:
                restart = driver.restart if can_restart else None
                options = ConformanceOptions(driver.socket, cdi_dir=driver.cdi, restart=restart, only=only)
                return await run_conformance(client, options), driver
            finally:
                await driver.stop()

    return asyncio.run(run())


def list_names(report: ConformanceReport, verdict: ConformanceVerdict, level: ConformanceLevel) -> set[str]:
    return {each.check for each in report.results if each.verdict is verdict and each.level is level}


@pytest.mark.parametrize(
    ("shape", "fails", "untried"),
    [
        (OnTheLibrary, LIBRARY_FAILS, WITHOUT_HEALTH),
        (WritesYaml, {*LIBRARY_FAILS, "reboot", "crash"}, WITHOUT_HEALTH),
        (OnlyInMemory, {*LIBRARY_FAILS, "restart-removed"}, WITHOUT_HEALTH),
        (OneFileForAll, LIBRARY_FAILS, {*WITHOUT_HEALTH, "reboot", "crash"}),
    ],
)
def test_drivers_within_the_protocol_pass_what_is_required(
    shape: type[Plain], fails: set[str], untried: set[str]
) -> None:
    with short_folder() as folder:
        report, _ = examine(shape, folder)
    required, advised = ConformanceLevel.REQUIRED, ConformanceLevel.ADVISED
    assert list_names(report, ConformanceVerdict.NO, required) == set()
    assert list_names(report, ConformanceVerdict.NO, advised) == fails
    assert list_names(report, ConformanceVerdict.NOT_TRIED, advised) == untried
    assert (report.is_conformant, report.is_strictly_conformant) == (True, False)


def test_a_driver_that_fails_what_is_required_does_not_conform() -> None:
    class RefusesAll(Plain):
        async def one(self, claim: Any) -> tuple[list[Any], str]:
            return [], "not today"

    with short_folder() as folder:
        report, _ = examine(RefusesAll, folder, "prepare", "unprepare-unknown")
    assert (report.is_conformant, report.is_strictly_conformant) == (False, False)


def test_every_check_has_a_level() -> None:
    assert {check.level for check in CHECKS} == set(ConformanceLevel)


@pytest.mark.parametrize("can_restart", [True, False])
def test_files_that_are_not_of_a_claim_of_the_suite_are_never_touched(can_restart: bool) -> None:
    """A driver's common file is there for running pods; a suite that removes it breaks them."""
    with short_folder() as folder:
        others = folder / "cdi" / "other.yaml"
        others.parent.mkdir()
        others.write_text("kind: other.example.com/thing\ndevices: [{name: x}]\n")
        before = others.stat()
        _, driver = examine(WritesYaml, folder, "cdi", "reboot", "crash", can_restart=can_restart)
        assert isinstance(driver, WritesYaml)
        assert sorted(driver.cdi.iterdir()) == sorted([others, driver.common])
        assert (others.stat().st_mtime_ns, others.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
        assert "common" in driver.common.read_text()


@pytest.mark.parametrize("check", ["reboot", "crash"])
def test_a_check_that_cannot_run_changes_no_file(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise AssertionError(f"{path} was changed")

    with short_folder() as folder:
        monkeypatch.setattr("dray.driver.conformance.restart_checks._cut_file", refuse)
        report, _ = examine(OneFileForAll, folder, check)
    (result,) = report.results
    assert result.verdict is ConformanceVerdict.NOT_TRIED
    assert result.why.startswith("the driver describes the claim in `all.yaml`, which also describes `")


class MovesItsSockets(Plain):
    """Starts at sockets of other names each time, like a driver that is updated without a gap."""

    starts = 0

    async def start(self) -> None:
        self.starts += 1
        old = self.socket
        self.socket = self.folder / f"{self.starts}-reg.sock"
        self.endpoint = self.folder / f"{self.starts}.sock"
        old.unlink(missing_ok=True)
        await super().start()


def test_a_driver_may_have_other_sockets_after_a_restart() -> None:
    with short_folder() as folder:
        report, _ = examine(MovesItsSockets, folder, "restart", "restart-deleted", "in-flight", "registers")
    assert [each for each in report.results if each.verdict is not ConformanceVerdict.YES] == []


class ReadsLikeAnApiServer(Plain):
    """Keeps what the claims look like that it is asked to prepare."""

    seen: list[ResourceClaim] = []

    async def found(self, claim: Any) -> tuple[ResourceClaim | None, str]:
        found, error = await super().found(claim)
        if found is not None:
            self.seen = [*self.seen, found]
        return found, error


def test_claims_look_as_a_scheduler_leaves_them() -> None:
    with short_folder() as folder:
        _, driver = examine(ReadsLikeAnApiServer, folder, "prepare")
    assert isinstance(driver, ReadsLikeAnApiServer)
    (claim,) = driver.seen
    assert claim.status.allocation is not None
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert claim.status.allocation.allocation_timestamp is not None
    assert claim.status.allocation.node_selector is not None
    assert [each.resource for each in claim.status.reserved_for] == ["pods"]


def test_no_write_names_a_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server of Kubernetes refuses a patch with a foreign uid as invalid, and chooses uids itself."""
    written: list[dict[str, Any]] = []
    patch, create = Client.patch, Client.create

    async def record_patch(self: Client, kind: Any, name: str, change: Any, *rest: Any, **more: Any) -> Any:
        written.append(change.document)
        return await patch(self, kind, name, change, *rest, **more)

    async def record_create(self: Client, obj: Any, *rest: Any, **more: Any) -> Any:
        written.append(obj)
        return await create(self, obj, *rest, **more)

    monkeypatch.setattr(Client, "patch", record_patch)
    monkeypatch.setattr(Client, "create", record_create)
    with short_folder() as folder:
        report, _ = examine(Plain, folder, "prepare-replaced", "held-device", "force-delete")
    assert [each.verdict for each in report.results] == [ConformanceVerdict.YES] * 3
    patches = [each for each in written if "resourceVersion" in each.get("metadata", {})]
    assert patches
    assert [each for each in written if "uid" in each.get("metadata", {})] == []
