"""The suite for classic drivers: a conformant one passes, and the check for it finds each broken one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dray.driver.classic.controller import ClassicAllocation, ClassicController
from dray.driver.classic.controller_service import ClassicControllerService
from dray.driver.conformance import ConformanceOptions, ConformanceReport, ConformanceVerdict, run_conformance
from dray.driver.conformance.check_table import CLASSIC_CHECKS
from tests.contract.classic import classic_class
from tests.contract.kitted import short_folder
from tests.contract.servers import reaching
from tests.unit.driver.conformance.reference_classic_driver import FOUND_BY, NAME, PlainClassic


class Plenty(ClassicController):
    """Allocates without a limit."""

    name = NAME

    def allocate(self, need, node, held):
        return ClassicAllocation(node)


def examined(shape: type[PlainClassic], *only: str) -> ConformanceReport:
    async def run(folder: Path) -> ConformanceReport:
        async with reaching("inside", folder) as reach:
            client = reach.client()
            await client.create(classic_class("plenty", NAME))
            driver = shape(folder, reach.client())
            await driver.start()
            task = asyncio.create_task(ClassicControllerService(reach.client(), Plenty()).run())
            choices = ConformanceOptions(
                driver.socket,
                cdi_dir=driver.cdi,
                restart=driver.restart,
                class_name="plenty",
                only=only,
            )
            try:
                return await run_conformance(client, choices)
            finally:
                task.cancel()
                await asyncio.wait([task])
                await driver.stop()

    with short_folder() as folder:
        return asyncio.run(run(folder))


def test_a_good_classic_driver_passes_everything():
    report = examined(PlainClassic)
    assert [each for each in report.results if each.verdict is not ConformanceVerdict.YES] == []
    assert [each.check for each in report.results] == [check.name for check in CLASSIC_CHECKS]


@pytest.mark.parametrize(("shape", "check"), FOUND_BY, ids=[f"{s.__name__}-{c}" for s, c in FOUND_BY])
def test_a_bad_classic_driver_is_found_by_the_check_that_is_there_for_it(shape, check):
    (outcome,) = examined(shape, check).results
    assert outcome.verdict is ConformanceVerdict.NO, outcome
    assert outcome.why
    assert outcome.hint


def test_every_check_has_a_driver_that_it_finds():
    assert {check.name for check in CLASSIC_CHECKS} == {check for _, check in FOUND_BY}
