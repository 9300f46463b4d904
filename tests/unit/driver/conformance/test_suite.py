"""The suite: a conformant driver passes, and the check for it finds each broken driver."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.client.object_refs import get_kind
from dray.driver.conformance import (
    CHECKS,
    ConformanceOptions,
    ConformanceReport,
    ConformanceVerdict,
    registration_checks,
    run_conformance,
)
from dray.driver.conformance.claims import NAMESPACE
from dray.errors import InputError
from tests.contract.servers import reaching
from tests.unit.driver.conformance.broken_drivers import FOUND_BY, Bare, Stranger
from tests.unit.driver.conformance.reference_driver import NAME, NODE, Plain, slices

T = TypeVar("T")
Document = dict[str, Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: those of sockets are limited."""
    made = Path(tempfile.mkdtemp(prefix="dray-"))
    yield made
    shutil.rmtree(made)


def examined(
    driver_class: type[Plain], folder: Path, *only: str, published: Document | None = None, **more: object
) -> ConformanceReport:
    """Run the suite against a driver of this class."""

    async def run() -> ConformanceReport:
        async with reaching("inside", folder) as reach:
            client = reach.client()
            await client.create(published or slices(3))
            driver = driver_class(folder, reach.client())
            await driver.start()
            given = {"cdi_dir": driver.cdi, "restart": driver.restart, "only": only, **more}
            try:
                return await run_conformance(client, ConformanceOptions(driver.socket, **given))  # type: ignore[arg-type]
            finally:
                left[:] = [each.metadata.name for each in (await client.list(ResourceClaim)).items]
                left.extend(await _leftovers(client))
                await driver.stop()

    left: list[str] = []
    report = done(run())
    assert not left, "the suite leaves nothing behind"
    return report


async def _leftovers(client: Client) -> list[str]:
    try:
        await client.get(get_kind("Namespace"), NAMESPACE)
    except NotFoundError:
        return []
    return [NAMESPACE]


def done(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; an exception in a task is raised without its exception groups."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        fault: BaseException = group
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        raise fault from None


@pytest.mark.req("K3063-022", "K3063-156")
def test_a_good_driver_that_knows_nothing_of_the_kit_passes_everything(folder):
    report = examined(Plain, folder)
    assert [each for each in report.results if each.verdict is not ConformanceVerdict.YES] == []
    assert [each.check for each in report.results] == [check.name for check in CHECKS]
    assert (report.driver, report.versions, report.node) == (NAME, ("v1", "v1beta1"), NODE)


@pytest.mark.parametrize(("shape", "check"), FOUND_BY, ids=[f"{s.__name__}-{c}" for s, c in FOUND_BY])
def test_a_bad_driver_is_found_by_the_check_that_is_there_for_it(shape, check, folder):
    (outcome,) = examined(shape, folder, check).results
    assert outcome.verdict is ConformanceVerdict.NO, outcome
    assert outcome.why == f"{outcome.found}; expected {outcome.expected}"
    assert outcome.found
    assert outcome.expected
    assert outcome.hint


def test_every_check_but_that_of_publishing_has_a_driver_that_it_finds():
    assert {check.name for check in CHECKS} - {check for _, check in FOUND_BY} == {"publishes"}


def test_an_incomplete_pool_is_reported(folder, monkeypatch):
    monkeypatch.setattr(registration_checks, "_POOL_SECONDS", 0.01)
    half = slices(3)
    half["spec"]["pool"]["resourceSliceCount"] = 2
    (outcome,) = examined(Plain, folder, "publishes", published=half).results
    assert (outcome.verdict, outcome.why) == (
        ConformanceVerdict.NO,
        f"pool `{NODE}` has 1 of 2 slices of generation 1; expected as many slices as `resourceSliceCount` "
        "says",
    )


def test_checks_that_need_more_than_there_is_are_skipped_with_a_reason(folder):
    report = examined(Plain, folder, "reboot", "restart", "cdi", "held-device", cdi_dir=None, restart=None)
    assert {each.check: (each.verdict.value, each.why) for each in report.results} == {
        "cdi": ("not tried", "the directory of CDI files is not known: give --cdi-dir"),
        "held-device": ("yes", ""),
        "restart": (
            "not tried",
            "the suite cannot restart the driver: give --restart COMMAND or --supervised",
        ),
        "reboot": ("not tried", "the directory of CDI files is not known: give --cdi-dir"),
    }


def test_a_driver_with_one_device_runs_the_checks_that_need_one(folder):
    report = examined(Plain, folder, published=slices(1))
    assert {
        each.check: each.why for each in report.results if each.verdict is not ConformanceVerdict.YES
    } == {
        "batch": "it needs 2 free devices of this driver, there are 1",
        "batch-mixed": "it needs 2 free devices of this driver, there are 1",
        "reboot": "it needs 2 free devices of this driver, there are 1",
    }


def test_an_endpoint_without_a_registration_needs_the_name_of_its_driver(folder):
    with pytest.raises(InputError, match=r"serves no registration.*give --driver NAME"):
        examined(Bare, folder)
    report = examined(Bare, folder, driver=NAME)
    assert {
        each.check: each.why for each in report.results if each.verdict is not ConformanceVerdict.YES
    } == {
        "registers": "the socket is not one of a registration",
        "offers": "the socket is not one of a registration",
        "health": "the driver offers no health stream",
        "health-report": "the driver offers no health stream",
    }


def test_a_plugin_of_another_type_is_not_examined(folder):
    with pytest.raises(InputError, match="is a `CSIPlugin`; the suite examines drivers that register as"):
        examined(Stranger, folder)


def test_an_unknown_check_is_an_error(folder):
    with pytest.raises(InputError, match="there is no check `restrat`"):
        examined(Plain, folder, "restrat")


def test_a_socket_without_a_server_is_an_error(folder):
    async def run() -> None:
        async with reaching("inside", folder) as reach:
            await run_conformance(reach.client(), ConformanceOptions(folder / "no.sock"))

    with pytest.raises(InputError, match=r"there is no socket `.*no\.sock`"):
        done(run())


def test_a_driver_on_several_nodes_needs_the_node(folder):
    async def run() -> None:
        async with reaching("inside", folder) as reach:
            client = reach.client()
            for node in ("node-0", "node-1"):
                document = slices(1)
                document["metadata"]["name"] = node
                document["spec"] |= {"nodeName": node}
                document["spec"]["pool"]["name"] = node
                await client.create(document)
            driver = Plain(folder, client)
            await driver.start()
            try:
                await run_conformance(client, ConformanceOptions(driver.socket))
            finally:
                await driver.stop()

    with pytest.raises(InputError, match="devices of 2 nodes; say with --node which"):
        done(run())
