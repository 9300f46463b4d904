"""The publisher with a real server: what it writes, what it refuses, and what it retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from dray.api.resource import Device, ResourceSlice
from dray.client.client import Client
from dray.client.errors import ForbiddenError, ServerUnreachableError
from dray.client.transport import TransportRequest
from dray.clock import SystemClock
from dray.driver import Capacity, InvalidDeviceError, Pool, Reach, Slice, device
from dray.driver.publishing.dropped_fields import FieldDroppedError
from dray.driver.publishing.pool_plan import build_slice_name_prefix
from dray.driver.publishing.publisher import PoolConflictError, Publisher
from dray.gates import GateSet
from dray.telemetry.logs import StructuredLogger
from dray.values.names import MAX_SUBDOMAIN, check_dns_subdomain
from tests.contract.api import path
from tests.contract.documents import resource_slice
from tests.unit.driver.driver_server import (
    DRIVER,
    NODE,
    SLICES,
    DriverServer,
    run_publisher,
    serve_for_drivers,
    wait_until,
)


def run(test: Callable[[DriverServer], Awaitable[None]], **gates: bool) -> None:
    """Run a test with a server, with some gates changed."""

    async def bounded() -> None:
        chosen = GateSet.from_defaults().override(gates)
        async with asyncio.timeout(60), serve_for_drivers(gates=chosen) as world:
            await test(world)

    asyncio.run(bounded())


def many(count: int, **fields: Any) -> list[Device]:
    return [device(f"gpu-{number}", **fields) for number in range(count)]


@pytest.mark.req("K5773-001", "K5773-022")
def test_a_thousand_devices_become_eight_slices_in_their_order() -> None:
    async def scenario(world: DriverServer) -> None:
        devices = list(reversed(many(1000, attributes={"model": "a100"})))
        transport = world.connect()
        outcome = await world.publisher(transport).publish(devices)
        assert (outcome.created, outcome.updated, outcome.deleted) == (8, 0, 0)
        slices = await world.slices()
        assert [len(each.spec.devices) for each in slices] == [128] * 7 + [104]
        assert await world.devices() == [each.name for each in devices]
        assert {each.spec.pool.resource_slice_count for each in slices} == {8}
        node = await world.api.get(path("nodes", NODE))
        owners = {(owner.kind, owner.uid) for each in slices for owner in each.metadata.owner_references}
        assert owners == {("Node", node["metadata"]["uid"])}
        transport.requests.clear()
        assert (await world.publisher(transport).publish(devices)).writes == 0
        assert transport.writes == []

    run(scenario)


@pytest.mark.req("K5773-024", "K5773-011", "K5773-016")
def test_priorities_counters_and_shared_devices_are_published() -> None:
    async def scenario(world: DriverServer) -> None:
        parts = [device(f"part-{n}", draws={"gpu-0": {"memory": "10Gi"}}) for n in range(65)]
        lanes = Slice(
            [device("nic", shared=True, capacity={"bandwidth": Capacity("10G", default="1G")})], priority=5
        )
        pool = Pool("mixed", [*parts, lanes], priority=-3, counters={"gpu-0": {"memory": "80Gi"}})
        assert (await world.publisher().publish([pool])).created == 4
        slices = await world.slices()
        assert {each.spec.pool.priority for each in slices} == {-3}
        shown = [
            (each.spec.priority, len(each.spec.devices), len(each.spec.shared_counters)) for each in slices
        ]
        assert shown == [(None, 64, 0), (None, 1, 0), (5, 1, 0), (None, 0, 1)]

    run(scenario, DRAResourceSlicePriority=True)


RICH: dict[str, tuple[Any, str]] = {
    "DRAListTypeAttributes": (
        device("d", attributes={"roots": ["a", "b"]}),
        "spec.devices[0].attributes[roots]",
    ),
    "DRAConsumableCapacity": (device("d", shared=True), "spec.devices[0].allowMultipleAllocations"),
    "DRADeviceTaints": (device("d", taints=["k=v:NoSchedule"]), "spec.devices[0].taints"),
    "DRAPartitionableDevices": (
        Pool(NODE, [device("d", draws={"c": {"m": 1}})], counters={"c": {"m": 2}}),
        "spec.sharedCounters",
    ),
    "DRADeviceBindingConditions": (
        device("d", binding_conditions=["x"], binding_failure_conditions=["y"]),
        "spec.devices[0].bindingConditions",
    ),
}


@pytest.mark.req("K5773-034")
def test_priorities_that_the_server_drops_are_left_out_and_that_is_logged_once() -> None:
    async def scenario(world: DriverServer) -> None:
        lines: list[bytes] = []

        def append_line(line: bytes) -> bool:
            lines.append(line)
            return True

        publisher = world.publisher(log=StructuredLogger(append_line, SystemClock()))
        late = Slice([device("late")], priority=-5)
        pool = Pool(NODE, [late, device("usual"), Slice([device("early")], priority=5)], priority=1)
        await publisher.publish([pool])
        assert (await publisher.publish([pool])).writes == 0
        await publisher.publish([device("another")])
        await publisher.publish([pool])
        slices = await world.slices()
        assert await world.devices() == ["early", "usual", "late"], "names have the order of priorities"
        assert {(each.spec.priority, each.spec.pool.priority) for each in slices} == {(None, None)}
        (line,) = lines
        assert b"priorities" in line
        assert b"KEP-5773" in line

    run(scenario, DRAResourceSlicePriority=False)


@pytest.mark.parametrize("gate", RICH)
def test_a_field_that_the_server_would_drop_is_an_error_and_nothing_is_published(gate: str) -> None:
    devices, field = RICH[gate]

    async def scenario(world: DriverServer) -> None:
        publisher = world.publisher()
        await publisher.publish([device("old")])
        with pytest.raises(FieldDroppedError) as caught:
            await publisher.publish([devices])
        assert gate in str(caught.value)
        assert any(each.field.startswith(field) for each in caught.value.dropped)
        assert await world.devices() == ["old"]

    run(scenario, **{gate: False})


def test_devices_in_use_stay_also_where_taints_are_dropped() -> None:
    async def scenario(world: DriverServer) -> None:
        publisher = world.publisher(in_use=lambda: {(NODE, "b")})
        await publisher.publish([device("a"), device("b")])
        await publisher.publish([device("a")])
        assert await world.devices() == ["a", "b"]
        assert (await publisher.publish([device("a")])).writes == 0

    run(scenario, DRADeviceTaints=False)


def test_only_slices_that_change_are_written_and_generations_rise_only_for_many() -> None:
    async def scenario(world: DriverServer) -> None:
        transport = world.connect()
        publisher = world.publisher(transport)
        devices = many(300)
        await publisher.publish(devices)
        devices[5] = device("gpu-5", attributes={"model": "new"})
        assert (await publisher.publish(devices)).updated == 1
        devices[290] = device("gpu-290", attributes={"model": "new"})
        devices[10] = device("gpu-10", attributes={"model": "new"})
        assert (await publisher.publish(devices)).updated == 2
        assert await world.generations() == {1}
        await publisher.publish(devices[1:250])
        assert await world.generations() == {2}
        assert await world.devices() == [each.name for each in devices[1:250]]

    run(scenario)


def test_two_publishers_of_one_pool_are_a_pool_conflict() -> None:
    async def scenario(world: DriverServer) -> None:
        await world.publisher(publisher="first").publish([device("a")])
        with pytest.raises(PoolConflictError, match=r"`first`.*`second`"):
            await world.publisher(publisher="second").publish([device("a")])

    run(scenario)


def test_slices_that_another_kit_left_in_the_pool_are_replaced_and_others_stay() -> None:
    async def scenario(world: DriverServer) -> None:
        await world.api.create(resource_slice("left-behind"), SLICES)
        await world.api.create(resource_slice("elsewhere", node="node-b"), SLICES)
        await world.publisher().publish([device("a")])
        assert [each.spec.pool.generation for each in await world.slices()] == [1, 2]
        assert sorted(await world.devices()) == ["a", "gpu-0", "gpu-1"]

    run(scenario)


def test_pools_that_a_driver_no_longer_reports_are_deleted_even_after_a_restart() -> None:
    async def scenario(world: DriverServer) -> None:
        await world.publisher().publish([Pool("one", [device("a")]), Pool("two", [device("b")])])
        await world.publisher().publish([Pool("two", [device("b")])])
        assert await world.devices() == ["b"]

    run(scenario)


def test_slices_stay_when_a_publisher_ends_and_are_deleted_by_withdraw() -> None:
    async def scenario(world: DriverServer) -> None:
        publisher = world.publisher()
        await publisher.publish(many(300))
        async with run_publisher(publisher):
            pass
        assert len(await world.slices()) == 3
        async with run_publisher(publisher):
            await publisher.withdraw()
            assert await world.slices() == []
        assert publisher.counters.healed == 0

    run(scenario)


@pytest.mark.parametrize(
    ("node", "pool", "says"),
    [
        (NODE, Pool("far", [device("a")], nodes=Reach.ALL_NODES), "for node `node-a` only"),
        ("", Pool("far", [device("a")]), "say which nodes reach it"),
    ],
)
def test_a_pool_that_its_publisher_cannot_reach_is_refused(node: str, pool: Pool, says: str) -> None:
    async def scenario(world: DriverServer) -> None:
        with pytest.raises(InvalidDeviceError, match=says):
            await world.publisher(node=node).publish([pool])

    run(scenario)


@pytest.mark.req("K5773-006")
def test_network_devices_are_published_for_selected_nodes_for_all_or_per_device() -> None:
    async def scenario(world: DriverServer) -> None:
        each_its_own = [device("a", nodes="node-a"), device("b", nodes=Reach.ALL_NODES)]
        publisher = world.publisher(node="")
        await publisher.publish(
            [
                Pool("rack/1", [device("x")], nodes={"rack": "1"}),
                Pool("everywhere", [device("x")], nodes=Reach.ALL_NODES),
                Pool("each", each_its_own, nodes=Reach.PER_DEVICE),
            ]
        )
        specs = {each.spec.pool.name: each.spec for each in await world.slices()}
        assert specs["everywhere"].all_nodes
        assert specs["each"].per_device_node_selection
        selector = specs["rack/1"].node_selector
        assert selector is not None
        assert selector.matches("n", {"rack": "1"})
        assert all(not each.metadata.owner_references for each in await world.slices())

    run(scenario)


class Observed(Publisher):
    """A publisher that records the slices whose watch events it has handled."""

    def __init__(self, client: Client, driver: str, node: str) -> None:
        super().__init__(client, driver, node)
        self.handled: set[str] = set()

    def _handle_changed_slice(self, changed: ResourceSlice) -> None:
        super()._handle_changed_slice(changed)
        self.handled.add(changed.metadata.uid)

    async def wait_until_reconciled(self, written: ResourceSlice) -> None:
        """Wait until the event of a slice was handled, and the reconciliation that it caused has ended."""

        async def is_reconciled() -> bool:
            async with self._lock:
                return written.metadata.uid in self.handled and not self._wake.is_set()

        await wait_until(is_reconciled)


def test_in_a_rolling_update_the_older_process_leaves_alone_what_the_newer_one_wrote() -> None:
    async def scenario(world: DriverServer) -> None:
        old = Observed(Client(world.connect()), DRIVER, NODE)
        await old.publish(many(2))
        async with run_publisher(old):
            await old.wait_until_reconciled((await world.slices())[0])
            new = world.publisher()
            async with run_publisher(new):
                await new.publish(many(3))
                await world.admin.delete(ResourceSlice, (await world.slices())[0].metadata.name)
                await wait_until(world.devices, lambda names: len(names) == 3)
                await old.wait_until_reconciled((await world.slices())[0])
            assert (old.counters.healed, new.counters.healed) == (0, 1)
            assert len(await world.devices()) == 3
            await old.publish(many(2))  # the newer one is gone: back to the old version
            assert len(await world.devices()) == 2

    run(scenario)


def test_a_driver_of_another_name_is_refused_for_good() -> None:
    async def scenario(world: DriverServer) -> None:
        with pytest.raises(ForbiddenError, match="may act for driver"):
            await world.publisher(world.connect(driver="other.example.com")).publish([device("a")])

    run(scenario)


def test_a_server_that_fails_in_the_middle_is_waited_for() -> None:
    async def scenario(world: DriverServer) -> None:
        transport = world.connect()
        failing = iter([False, True, False, True])

        def breaks(request: TransportRequest) -> None:
            if request.method == "POST" and next(failing, False):
                raise ServerUnreachableError("connection reset", sent=True)

        transport.before = breaks
        publisher = world.publisher(transport)
        await publisher.publish(many(300))
        assert len(await world.devices()) == 300
        assert publisher.counters.failures > 0

    run(scenario)


def test_a_node_that_is_not_registered_yet_is_waited_for() -> None:
    async def scenario(world: DriverServer) -> None:
        await world.api.delete(path("nodes", NODE))
        publisher = world.publisher()
        publishing = asyncio.create_task(publisher.publish([device("a")]))

        async def has_failed() -> bool:
            return publisher.counters.failures > 0

        await wait_until(has_failed)
        assert await world.slices() == []
        await world.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        await publishing
        assert await world.devices() == ["a"]

    run(scenario)


def test_repeated_changes_by_another_writer_are_restored_with_growing_delays() -> None:
    async def scenario(world: DriverServer) -> None:
        publisher: Publisher = world.publisher()
        await publisher.publish([device("a")])
        async with run_publisher(publisher):
            for times in (1, 2, 3):
                await world.admin.delete(ResourceSlice, (await wait_until(world.slices))[0].metadata.name)
                await wait_until(partial(_healed, publisher, times))
        assert await world.devices() == ["a"]

    async def _healed(publisher: Publisher, times: int) -> bool:
        return publisher.counters.healed >= times

    run(scenario)


@pytest.mark.parametrize("node", ["", "n", "n" * 253])
@pytest.mark.parametrize("pool", ["p", "a/b", "p" * 253])
def test_names_of_slices_are_legal_whatever_the_names_they_are_made_of(node: str, pool: str) -> None:
    name = build_slice_name_prefix("d" * 63, node, pool) + "-c000100"
    assert not check_dns_subdomain(name)
    assert len(name) <= MAX_SUBDOMAIN


def test_names_of_slices_of_different_pools_differ() -> None:
    given = [
        (DRIVER, "", "a/b"),
        (DRIVER, "", "a-b"),
        (DRIVER, "a", "b"),
        (DRIVER, "a", "c"),
        ("a", "b-c", "x"),
    ]
    assert len({build_slice_name_prefix(*each) for each in given}) == len(given)
