"""The plugin registry: drivers register through sockets, are notified, and are removed."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dray.client.errors import ServerUnreachableError
from dray.errors import InputError
from dray.node import agent_metrics
from dray.node.plugins.driver_client import PluginRegistration
from dray.node.plugins.driver_interface import ClaimRef
from dray.node.plugins.registration_validation import RegistrationRefusal, validate_registration
from dray.wire import grpc_services
from tests.e2e.plain_driver import PlainDriver
from tests.e2e.plain_messages import DRA
from tests.unit.node.registry_harness import GRACE, NAME, RegistryHarness, open_registry_harness, until


def numbers(here: RegistryHarness, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in here.metrics.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.req("K3063-006", "K3063-022")
def test_a_driver_registers_and_is_notified() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            assert here.registry.find_driver(NAME) is None
            driver = await here.driver()
            await here.registered()
            assert driver.statuses == [(True, "")]
            assert here.came == [NAME]
            assert list(here.registry.list_drivers()) == [NAME]
            line = here.registry.find_driver(NAME)
            assert line is not None
            assert (line.name, line.classic) == (NAME, False)
            assert numbers(here, agent_metrics.REGISTRATIONS) == {("registered",): 1}
            assert numbers(here, agent_metrics.DRIVERS) == {(): 1}

    asyncio.run(run())


@pytest.mark.req("K3063-129")
def test_a_classic_driver_registers_by_its_type() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            await here.driver(type="ResourcePlugin", versions=("1.0.0",))
            await here.registered()
            line = here.registry.find_driver(NAME)
            assert line is not None
            assert line.classic
            assert here.registry.find_driver(NAME, classic=True) is line
            assert here.registry.find_driver(NAME, classic=False) is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("ways", "text"),
    [
        (
            {"type": "DevicePlugin"},
            "plugins of type `DevicePlugin` are not supported, only `DRAPlugin` and `Reso",
        ),
        (
            {"versions": ("v1alpha3.DRAPlugin",)},
            f"driver `{NAME}` offers `v1alpha3.DRAPlugin`, and this agent supports `v1.DRAPlugin`, `v1beta1.",
        ),
        ({"versions": ()}, f"driver `{NAME}` offers nothing, and this agent supports"),
        ({"versions": ("v1.DRAResourceHealth",)}, f"driver `{NAME}` offers `v1.DRAResourceHealth`, and this"),
        (
            {"type": "ResourcePlugin", "versions": ("v2.ResourcePlugin",)},
            "and this agent supports `v1alpha1.ResourcePlugin`",
        ),
        ({"endpoint": "dra.sock"}, "`dra.sock` is not an absolute path"),
        ({"endpoint": "/a/../b.sock"}, "`/a/../b.sock` is not an absolute path"),
        ({"endpoint": "/nowhere/at/all.sock"}, "cannot be inspected: No such file or directory"),
        ({"endpoint": "/etc/passwd"}, "`/etc/passwd` is not a socket"),
        ({"endpoint": "/" + "x" * 107}, "is longer than a socket's path can be (107 bytes)"),
    ],
)
def test_a_registration_that_will_not_do_is_refused_with_the_reason(ways: dict[str, Any], text: str) -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver(**ways)
            await here.until(lambda: bool(driver.statuses))
            registered, error = driver.statuses[0]
            assert not registered
            assert text in error
            await here.until(lambda: len(driver.statuses) > 1)
            assert here.registry.list_drivers() == {}
            told = [line for line in here.lines if "a driver could not register" in line]
            assert len(told) == 1, "what was said once is not said again"

    asyncio.run(run())


def test_a_name_that_is_none_is_refused_without_its_strange_letters() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver(says="No\nName\x1b[31m")
            await here.until(lambda: bool(driver.statuses))
            assert driver.statuses[0][1].startswith("`No Name [31m` is not a valid driver name: ")

    asyncio.run(run())


def test_links_and_files_are_logged_and_never_called() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            real = here.plugins / "elsewhere.sock"
            driver.ways.registration().rename(real)
            (here.registrations / "link.sock").symlink_to(real)
            (here.registrations / "file.sock").write_text("")
            (here.registrations / ".hidden.sock").symlink_to(real)
            await here.until(lambda: len(here.lines) >= 2)
            told = sorted(line for line in here.lines if "could not register" in line)
            assert ["is a link, and links are not followed" in line for line in told] == [False, True]
            assert "is not a socket" in told[0]
            assert driver.statuses == []

    asyncio.run(run())


def test_a_socket_of_another_user_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            if os.geteuid() == 0:
                os.chown(driver.ways.registration(), 12345, -1)
            else:
                monkeypatch.setattr(os, "geteuid", lambda: 12345)
            await here.until(lambda: any("neither to this one" in line for line in here.lines))
            assert driver.statuses == []

    asyncio.run(run())


def test_an_endpoint_must_lie_where_drivers_may_answer() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            allowed = here.plugins / "allowed"
            said = SimpleNamespace(
                type="DRAPlugin",
                name=NAME,
                supported_versions=["v1.DRAPlugin"],
                endpoint=str(driver.ways.socket()),
            )
            assert isinstance(
                validate_registration(said, driver.ways.registration(), (here.plugins,)), PluginRegistration
            )
            refused = validate_registration(said, driver.ways.registration(), (allowed,))
            assert isinstance(refused, RegistrationRefusal)
            assert f"is not in `{allowed}`" in refused.text
            # A link inside that leads outside is outside.
            allowed.mkdir()
            (allowed / "way").symlink_to(driver.ways.plugins)
            said.endpoint = str(allowed / "way" / driver.ways.socket().name)
            assert isinstance(
                validate_registration(said, driver.ways.registration(), (allowed,)), RegistrationRefusal
            )

    asyncio.run(run())


def test_an_empty_endpoint_means_the_registration_socket() -> None:
    said = SimpleNamespace(type="ResourcePlugin", name=NAME, supported_versions=[], endpoint="")
    with socket.socket(socket.AF_UNIX) as listening, tempfile.TemporaryDirectory(prefix="dray-") as folder:
        path = Path(folder) / "x.sock"
        listening.bind(str(path))
        offer = validate_registration(said, path)
    assert offer == PluginRegistration(NAME, True, (grpc_services.CLASSIC_V1ALPHA1,), (), str(path))


def test_an_old_driver_with_a_plain_version_is_spoken_to_in_v1beta1() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver(versions=("1.0.0",))
            await here.registered()
            line = here.registry.find_driver(NAME)
            assert line is not None
            assert isinstance((await line.prepare([ClaimRef("d", "c", "u")]))["u"], tuple)
            assert [method for method, _ in driver.calls] == [f"{DRA.format('v1beta1')}/NodePrepareResources"]

    asyncio.run(run())


def test_a_driver_without_a_listening_endpoint_is_not_registered_until_it_listens() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways())
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(driver.ways.socket()))
            endpoint = driver.ways.socket().rename(here.plugins / "dead.sock")
            object.__setattr__(driver.ways, "endpoint", str(endpoint))
            await here.started(driver)
            await here.until(lambda: bool(driver.statuses))
            assert driver.statuses[0] == (
                False,
                f"driver `{NAME}` does not listen at its endpoint `{endpoint}`",
            )
            assert here.registry.find_driver(NAME) is None
            object.__setattr__(driver.ways, "endpoint", None)
            await here.registered()
            assert driver.statuses[-1] == (True, "")

    asyncio.run(run())


def test_a_driver_that_removes_its_socket_is_removed_after_the_grace_period() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            await driver.stop()
            await here.until(lambda: here.registry.find_driver(NAME) is None)
            here.pass_time(GRACE - 1)
            assert (here.went, here.withdrawn) == ([], [])
            here.pass_time(1)
            await until(lambda: here.withdrawn == [NAME])
            assert here.went == [NAME]
            here.pass_time(10 * GRACE)
            assert here.withdrawn == [NAME]

    asyncio.run(run())


def test_a_driver_that_comes_back_in_time_keeps_its_slices() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            await driver.stop()
            await here.until(lambda: here.registry.find_driver(NAME) is None)
            here.pass_time(GRACE - 1)
            await here.started(driver)
            await here.registered()
            here.pass_time(10 * GRACE)
            assert (here.came, here.went, here.withdrawn) == ([NAME, NAME], [], [])

    asyncio.run(run())


def test_a_driver_that_can_be_reached_again_was_never_away() -> None:
    """Its endpoint was closed for a while, and it did not register again."""

    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            (instance,) = here.registry._list_instances()
            await driver.hide()
            await here.until(lambda: instance.unreachable_since is not None)
            here.pass_time(GRACE - 1)
            await driver.show()
            await here.until(lambda: instance.unreachable_since is None)
            here.pass_time(GRACE * 2)
            assert (here.came, here.went, here.withdrawn) == ([NAME], [], [])
            line = here.registry.find_driver(NAME)
            assert line is not None
            assert isinstance((await line.prepare([ClaimRef("d", "c", "u")]))["u"], tuple)

    asyncio.run(run())


def test_when_the_newest_instance_cannot_be_reached_an_older_one_answers() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            old = await here.driver(instance="-1")
            await here.registered()
            new = await here.driver(instance="-2")
            await here.until(lambda: len(here.came) == 2)
            for away, answering in ((None, new), (new, old)):
                if away is not None:
                    await away.hide()
                    await here.until(
                        lambda: any(
                            each.unreachable_since is not None for each in here.registry._list_instances()
                        )
                    )
                line = here.registry.find_driver(NAME)
                assert line is not None
                await line.prepare([ClaimRef("d", "c", "u")])
                assert len(answering.calls) == 1

    asyncio.run(run())


def test_a_driver_that_replaces_a_dead_socket_registers_once() -> None:
    """An attempt that was for the old file must not register whoever sits at the new one."""

    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways())
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(driver.ways.registration()))
            await here.until(lambda: any("no process listens" in line for line in here.lines))
            await here.started(driver)
            await until(lambda: any("its socket was replaced" in line for line in here.lines))
            assert (driver.statuses, here.came) == ([], [])
            await here.registered()
            here.pass_time(1)
            assert (driver.statuses, here.came) == ([(True, "")], [NAME])

    asyncio.run(run())


def test_withdrawing_is_tried_again_and_stops_when_the_driver_is_back() -> None:
    attempts: list[str] = []

    async def withdraw(name: str) -> None:
        attempts.append(name)
        raise ServerUnreachableError("no server")

    async def run() -> None:
        async with open_registry_harness(withdraw=withdraw) as here:
            driver = await here.driver()
            await here.registered()
            await driver.stop()
            await here.until(lambda: here.registry.find_driver(NAME) is None)
            here.pass_time(GRACE)
            await until(lambda: len(attempts) > 3)
            await here.started(driver)
            await here.registered()
            # The task that withdraws ends: nothing can try again.
            await until(lambda: not here.registry._tasks)
            attempted = len(attempts)
            here.registry.sync()
            assert not here.registry._tasks
            assert len(attempts) == attempted

    asyncio.run(run())


def test_expected_drivers_that_do_not_register_are_removed() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            await here.driver()
            await here.registered()
            here.registry.expect_drivers([NAME, "other.example.com"])
            here.pass_time(GRACE)
            await until(lambda: bool(here.withdrawn))
            assert here.withdrawn == here.went == ["other.example.com"]

    asyncio.run(run())


def test_the_registry_is_ready_after_an_attempt_at_each_socket() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            await here.driver()
            await here.driver("slow.example.com")
            (slow,) = [each for each in here._drivers if each.ways.name == "slow.example.com"]
            slow.hangs.add("GetInfo")
            working = asyncio.create_task(here.registry.run())
            await asyncio.wait_for(here.registry.ready.wait(), 30)
            assert list(here.registry.list_drivers()) == [NAME]
            assert any("GetInfo: Deadline Exceeded (DEADLINE_EXCEEDED)" in line for line in here.lines)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            assert here.registry.list_drivers() == {}
            assert here.withdrawn == [], "an agent that ends withdraws nothing"

    asyncio.run(run())


def test_a_directory_that_others_may_write_to_is_not_used() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            here.registrations.chmod(0o777)
            with pytest.raises(InputError, match="may be written to by others"):
                await here.registry.run()

    asyncio.run(run())
