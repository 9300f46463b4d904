"""The drivers of examples/drivers: good ones, small ones, and the same devices that simulated nodes have."""

from __future__ import annotations

import asyncio
import io
import tokenize
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.codec import to_document
from dray.api.resource import Device, ResourceSlice, ResourceSliceSpec
from dray.client.client import Client
from dray.cluster.local import example_nodes
from dray.driver import Claim, ClassicDriver, Driver, Got, Pool, Quantity, Setting
from dray.driver.classic.controller import ClassicController
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.classic.inventory import publish_inventory
from dray.driver.conformance import ConformanceOptions, ConformanceVerdict, run_conformance
from dray.driver.conformance.check_table import CLASSIC_CHECKS
from dray.driver.devices import group_into_pools
from dray_examples.cpu.driver import Cpu
from dray_examples.env.classic import ClassicEnv
from dray_examples.env.driver import EnvDriver, Variables
from dray_examples.first.driver import Dice
from dray_examples.fpga.driver import Fpga
from dray_examples.gpu.driver import Gpu, GpuConfig, Sharing
from dray_examples.nic.driver import Nic
from tests.contract.classic import classic_class
from tests.contract.kitted import NODE, kitted, short_folder
from tests.contract.servers import reaching
from tests.outside import ROOT

DRIVERS = ROOT / "examples" / "drivers"
SMALL = 60
"""Lines of code of a whole driver."""
LONGEST = 120

NO_HEALTH = {"health", "health-report"}
NOTHING_ALONE = {*NO_HEALTH, "held-device", "restart-held"}
"""What cannot be tried on a driver whose devices are all shared."""

EXAMINED: tuple[tuple[str, Any, set[str]], ...] = (
    ("gpu", Gpu, set()),
    ("gpu in parts", lambda: Gpu(parts=4), set()),
    ("nic", Nic, NOTHING_ALONE),
    ("cpu", Cpu, NO_HEALTH),
    ("env", EnvDriver, NOTHING_ALONE),
    ("dice", Dice, NO_HEALTH),
)

PARAMETERS = {EnvDriver: {"env": {"greeting": "hello"}}}
"""Without a variable nothing would be put into a container."""


@pytest.mark.parametrize(("make", "untried"), [row[1:] for row in EXAMINED], ids=[row[0] for row in EXAMINED])
async def test_a_driver_of_the_kit_passes_the_suite(make, untried):
    with short_folder() as folder:
        async with (
            reaching("inside", folder) as reach,
            kitted(make, reach.client(), folder) as driver,
        ):
            parameters = PARAMETERS.get(make)
            choices = ConformanceOptions(
                driver.socket, cdi_dir=driver.cdi, restart=driver.restart, parameters=parameters
            )
            report = await run_conformance(reach.client(), choices)
    found = {
        each.check: (each.verdict.value, each.why)
        for each in report.results
        if each.verdict is not ConformanceVerdict.YES
    }
    assert set(found) == untried, found
    assert not report.count(ConformanceVerdict.NO), found


@asynccontextmanager
async def allocating(controller: ClassicController, client: Client, **choices: Any) -> AsyncIterator[None]:
    """The controller of a classic driver while the block lasts; it runs inside the test."""
    negotiation = ClassicControllerService(client, controller, ClassicControllerOptions(**choices))
    task = asyncio.create_task(negotiation.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


CLASSIC: tuple[tuple[type[ClassicDriver], dict[str, Any]], ...] = (
    (ClassicEnv, {"env": {"greeting": "hello"}}),
    (Fpga, {"bitstream": "filter"}),
)


@pytest.mark.parametrize(("make", "parameters"), CLASSIC, ids=[row[0].__name__ for row in CLASSIC])
async def test_a_classic_driver_of_the_kit_passes_the_suite(make, parameters, monkeypatch):
    with short_folder() as folder:
        monkeypatch.setenv("FPGA_CARDS", str(folder / "cards"))
        async with (
            reaching("inside", folder) as reach,
            kitted(make, reach.client(), folder) as driver,
        ):
            client = reach.client()
            await client.create(classic_class("mine", make.name))
            await client.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fpga-system"}}
            )
            await publish_inventory(client, make.name, "fpga-system", NODE, {"cards": "card-0"})
            async with allocating(make.controller(), client, inventory=True, namespace="fpga-system"):
                choices = ConformanceOptions(
                    driver.socket,
                    cdi_dir=driver.cdi,
                    restart=driver.restart,
                    parameters=parameters,
                    class_name="mine",
                )
                report = await run_conformance(client, choices)
                left = (await client.list(ClassicResourceClaim)).items
    assert {
        each.check: each.why for each in report.results if each.verdict is not ConformanceVerdict.YES
    } == {}
    assert [each.check for each in report.results] == [check.name for check in CLASSIC_CHECKS]
    assert (report.driver, report.versions, left) == (make.name, ("classic",), ())


async def test_a_classic_driver_without_a_class_is_not_tried():
    with short_folder() as folder:
        async with (
            reaching("inside", folder) as reach,
            kitted(ClassicEnv, reach.client(), folder) as driver,
        ):
            report = await run_conformance(
                reach.client(), ConformanceOptions(driver.socket, only=["prepare", "prepare-unknown"])
            )
    assert {each.check: (each.verdict.value, each.why) for each in report.results} == {
        "prepare": (
            "not tried",
            "the ResourceClass for claims is not known: give --class NAME",
        ),
        "prepare-unknown": ("yes", ""),
    }


def code_lines(path: Path) -> int:
    """Lines that are neither empty, nor comment, nor docstring."""
    tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    fresh = True
    for token in tokens:
        if token.type in skipped or token.type == tokenize.ENDMARKER:
            fresh = fresh or token.type in (tokenize.NEWLINE, tokenize.INDENT)
            continue
        if not (fresh and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        fresh = False
    return len(lines)


def test_a_driver_can_be_very_small():
    assert code_lines(DRIVERS / "first" / "driver.py") < SMALL


@pytest.mark.parametrize("path", sorted(DRIVERS.glob("*/*.py")), ids=lambda path: path.parent.name)
def test_no_example_is_long(path):
    assert code_lines(path) < LONGEST


def test_lines_of_code_are_counted_as_people_would(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(
        '"""Doc\n\nmore."""\n\n# why\nx = 1\n\n\ndef f():\n    """Doc."""\n    return """a\nb"""\n'
    )
    assert code_lines(file) == 4


# --- the devices ---


def devices_of(driver: Driver) -> list[Device]:
    told: Any = driver.devices()
    return [each for pool in group_into_pools(told, driver.node) for each in pool.devices]


def documents(driver: Driver) -> list[dict[str, Any]]:
    page = ResourceSlice(spec=ResourceSliceSpec(devices=tuple(devices_of(driver))))
    found: list[dict[str, Any]] = to_document(page)["spec"]["devices"]
    return found


@pytest.mark.parametrize("number", range(4))
def test_drivers_publish_what_simulated_nodes_have(number):
    gpus, cards = example_nodes.build_slices(number)
    assert documents(Gpu(node=f"node-{number}")) == gpus["spec"]["devices"]
    assert documents(Gpu(node="other", node_number=number)) == gpus["spec"]["devices"]
    assert documents(Nic(node=f"node-{number}")) == cards["spec"]["devices"]
    assert {each["spec"]["pool"]["name"] for each in (gpus, cards)} == {f"node-{number}"}


def test_a_card_is_whole_or_in_parts_and_never_both():
    (pool,) = Gpu(node="node-0", parts=4).devices()
    assert isinstance(pool, Pool)
    whole, part = (
        next(each for each in pool.devices if each.name == name) for name in ("gpu-1", "gpu-1-part-0")
    )
    (has,) = (each for each in pool.counters if each.name == "card-1")
    drawn = [each.consumes_counters[0].counters["memory"].value for each in (whole, part)]
    assert drawn == [Quantity.parse("80Gi"), Quantity.parse("20Gi")]
    assert has.counters["memory"].value == drawn[0]
    assert len(pool.devices) == 4 + 16


def test_the_fabric_comes_after_what_is_near():
    (fabric,) = Nic().devices()
    assert isinstance(fabric, Pool)
    assert (fabric.name, fabric.priority) == ("fabric", -1)
    assert all(isinstance(each, Device) for each in Nic(node="node-0").devices())


# --- what containers get ---


def claim(*got: Got) -> Claim:
    return Claim("default", "c", "0f1e2d3c-0000-4000-8000-000000000001", got)


def test_a_container_is_told_how_its_card_is_shared():
    config = (Setting("claim", GpuConfig(Sharing("TimeSlicing", "Short"))),)
    (plain,) = Gpu().prepare(claim(Got("r", "node-0", "gpu-2")))
    (shared,) = Gpu().prepare(claim(Got("r", "node-0", "gpu-2-part-1", config=config)))
    assert plain.env == {"GPU_DEVICE_2": "gpu-2", "GPU_DEVICE_2_SHARING": "Exclusive"}
    assert shared.env == {
        "GPU_DEVICE_2": "gpu-2-part-1",
        "GPU_DEVICE_2_SHARING": "TimeSlicing",
        "GPU_DEVICE_2_INTERVAL": "Short",
    }


def test_a_card_is_ill_while_there_is_a_file_that_says_so(tmp_path):
    driver = Gpu(node="node-0", unhealthy_dir=tmp_path)
    assert all(each.healthy for each in driver.health())
    (tmp_path / "gpu-3").touch()
    assert [(each.device, each.message) for each in driver.health() if not each.healthy] == [
        ("gpu-3", "too hot")
    ]


def test_a_share_has_its_bandwidth_and_an_address_of_its_own():
    mine, others = (
        Got("front", "node-0", "eth0", share_id=f"share-{n}", consumed={"bandwidth": Quantity.parse("4G")})
        for n in (1, 2)
    )
    (ready,) = Nic().prepare(claim(mine))
    assert ready.env == {
        "NIC_FRONT_INTERFACE": "eth0",
        "NIC_FRONT_SHARE": "share-1",
        "NIC_FRONT_BANDWIDTH": "4G",
    }
    network = [next(iter(Nic().prepare(claim(each)))).status for each in (mine, mine, others)]
    assert network[0] == network[1] != network[2]


def test_all_cores_of_a_claim_are_told_together():
    got = [Got("cores", "node-0", f"cpu-{n}") for n in (2, 1)]
    assert [each.env for each in Cpu().prepare(claim(*got))] == [
        {"CPU_SET": "8-15,16-23", "CPU_MEMORY_NODES": "0,1,2,3"}
    ] * 2


def test_parameters_of_class_and_claim_become_variables():
    config = (
        Setting("class", Variables({"region": "north"})),
        Setting("claim", Variables({"greeting": "hello"})),
    )
    (ready,) = EnvDriver().prepare(claim(Got("r", "node-0", "environment", config=config)))
    assert ready.env == {"ADMIN_REGION": "north", "USER_GREETING": "hello"}
