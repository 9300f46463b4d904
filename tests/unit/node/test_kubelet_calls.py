"""The agent calls drivers as a kubelet does, except where that was decided otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.plugins.driver_client import DriverCallOptions
from dray.node.plugins.registry import PluginRegistry, PluginRegistryOptions
from tests.contract.kitted import short_folder
from tests.outside import ROOT
from tests.unit.node import kubelet_calls
from tests.unit.node.agent_harness import AgentHarness, ToyDriver, container, pod, until
from tests.unit.node.kubelet_calls import DRIVERS, SCENARIOS, Call, Scenario
from tests.unit.node.recording_driver import RecordingDriver

RECORD = ROOT.parent / "shared" / "api-samples" / "kubelet-calls.txt"
LONGEST_SECONDS = 120.0
SHORT_CALL_SECONDS = 2.0
"""The deadline of calls in the scenario that waits for it."""


class RecordingNode(AgentHarness):
    """A node with two recording drivers."""

    def __init__(self, server: Any, folder: Path) -> None:
        super().__init__(server, folder / "n", ToyDriver())
        self._registry_options = PluginRegistryOptions(folder / "r", poll_seconds=0.05)
        for directory in (folder / "r", folder / "p"):
            directory.mkdir(mode=0o700)
        self.drivers = {name: RecordingDriver(name, folder / "r", folder / "p") for name in DRIVERS}
        self.running_at_unprepare: list[str] = []
        """Containers that were running when a driver was asked to unprepare a claim."""
        for driver in self.drivers.values():
            driver.before_unprepare = self._record_running

    async def _record_running(self) -> None:
        runtime = ProcessRuntime(self.root / "containers")
        found = await runtime.list_containers()
        self.running_at_unprepare += [each.id.name for each in found if each.exit is None]
        await runtime.close()

    @property
    def a(self) -> RecordingDriver:
        return self.drivers["a"]

    @property
    def b(self) -> RecordingDriver:
        return self.drivers["b"]

    @asynccontextmanager
    async def run_agent(self, call_seconds: float = 0.0) -> AsyncIterator[None]:
        """Run an agent with which both drivers are registered."""
        options = DriverCallOptions(timeout=call_seconds) if call_seconds else DriverCallOptions()
        async with self.agent(drivers=PluginRegistry(self._registry_options, options)):
            yield

    async def start_pod(self, name: str, *claims: str, **spec: Any) -> None:
        """Create a pod with claims, each named for its driver: `c0@a`; the claims are reserved for it."""
        names = [each.partition("@")[0] for each in claims]
        entries = [{"name": each, "resourceClaimName": each} for each in names]
        one = spec.pop("one", None) or container()
        one["resources"] = {"claims": [{"name": each} for each in names]}
        await self.create(pod(name, one, resourceClaims=entries, **spec))
        for each in claims:
            claim, _, driver = each.partition("@")
            await self.claim(claim, name, device=f"dev-{claim}", driver=self.drivers[driver].name)

    async def wait_for_call(self, driver: RecordingDriver, *wanted: str) -> None:
        """Wait until a driver has got calls like these, in this order, among others."""

        async def has_them() -> bool:
            remaining = iter([str(call) for call in driver.calls])
            return all(any(call == each for call in remaining) for each in wanted)

        await until(has_them, lambda: driver.calls)

    async def delete_and_wait(self, *names: str) -> None:
        for name in names:
            await self.delete(name)
        for name in names:
            await self.gone(name)


async def run_s1(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a", "c1@a", "c2@b")
        await node.phase("p", "Running")
        await node.delete_and_wait("p")


async def run_s2(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p1", "x@a")
        entries = [{"name": "x", "resourceClaimName": "x"}]
        one = container() | {"resources": {"claims": [{"name": "x"}]}}
        await node.create(pod("p2", one, resourceClaims=entries))
        await node.reserve("x", "p1", "p2")
        for name in ("p1", "p2"):
            await node.phase(name, "Running")
        await node.delete_and_wait("p1")
        assert [call.verb for call in node.a.calls if call.verb == "unprepare"] == []
        await node.delete_and_wait("p2")


async def run_s3(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a", one=container("c", "true"), restartPolicy="Never")
        await node.phase("p", "Succeeded")


async def _run_failing_prepare(node: RecordingNode, how: str) -> None:
    async with node.run_agent():
        node.a.fails["prepare"] = how
        await node.start_pod("p", "c0@a")
        await node.wait_for_call(node.a, f"prepare c0 {how}")
        del node.a.fails["prepare"]
        await node.phase("p", "Running")
        await node.delete_and_wait("p")


async def run_s4(node: RecordingNode) -> None:
    await _run_failing_prepare(node, "refused")


async def run_s5(node: RecordingNode) -> None:
    await _run_failing_prepare(node, "failed")


async def run_s6(node: RecordingNode) -> None:
    await _run_failing_prepare(node, "omitted")


async def run_s7(node: RecordingNode) -> None:
    async with node.run_agent(SHORT_CALL_SECONDS):
        node.a.fails["prepare"] = "hangs"
        await node.start_pod("p", "c0@a")
        await node.wait_for_call(node.a, "prepare c0 under way")
        del node.a.fails["prepare"]  # it hangs once
        await node.phase("p", "Running")
        await node.delete_and_wait("p")


async def run_s8(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a")
        await node.phase("p", "Running")
        node.a.fails["unprepare"] = "refused"
        await node.delete("p")
        await node.wait_for_call(node.a, "unprepare c0 refused")
        assert (await node.pod("p"))["metadata"]["deletionTimestamp"], (
            "the pod stays until the claim is given back"
        )
        del node.a.fails["unprepare"]
        await node.gone("p")


async def run_s9(node: RecordingNode) -> None:
    async with node.run_agent():
        node.b.fails["prepare"] = "refused"
        await node.start_pod("p", "c0@a", "c1@b")
        await node.wait_for_call(node.a, "prepare c0")
        await node.wait_for_call(node.b, "prepare c1 refused")
        await node.delete_and_wait("p")


async def run_s10(node: RecordingNode) -> None:
    async with node.run_agent():
        node.a.fails["prepare"] = "hangs"
        await node.start_pod("p", "c0@a")
        await node.wait_for_call(node.a, "prepare c0 under way")
        await node.delete("p")
        await node.until("p", lambda seen: "deletionTimestamp" in seen["metadata"])
        node.a.released.set()
        await node.gone("p")


async def run_s11(node: RecordingNode) -> None:
    async with node.run_agent():
        again = container(
            "c", "sh", "-c", "test -e $0 && exec sleep 600; touch $0; exit 1", str(node.root / "once")
        )
        await node.start_pod("p", "c0@a", one=again)
        await node.until(
            "p", lambda seen: any(c.get("restartCount") for c in seen["status"].get("containerStatuses", ()))
        )
        await node.delete_and_wait("p")


async def run_s12(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a", "c1@b")
        await node.phase("p", "Running")
    async with node.run_agent():
        await node.phase("p", "Running")
        await node.delete_and_wait("p")


async def run_s13(node: RecordingNode) -> None:
    async with node.run_agent():
        node.a.fails["prepare"] = "hangs"
        await node.start_pod("p", "c0@a")
        await node.wait_for_call(node.a, "prepare c0 under way")
    await node.wait_for_call(node.a, "prepare c0 cancelled")
    del node.a.fails["prepare"]
    async with node.run_agent():
        await node.phase("p", "Running")
        await node.delete_and_wait("p")


async def run_s14(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a")
        await node.phase("p", "Running")
        await node.delete("p", grace=0)
        await node.wait_for_call(node.a, "unprepare c0")


async def run_s15(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a")
        await node.phase("p", "Running")
    await node.delete("p")
    async with node.run_agent():
        await node.gone("p")


async def run_s16(node: RecordingNode) -> None:
    async with node.run_agent():
        await node.start_pod("p", "c0@a")
        await node.phase("p", "Running")
    await node.delete("p", grace=0)
    async with node.run_agent():
        await node.wait_for_call(node.a, "unprepare c0")


async def run_s17(node: RecordingNode) -> None:
    async with node.run_agent():
        node.a.fails["prepare"] = "refused"
        await node.start_pod("p", "c0@a")
        await node.wait_for_call(node.a, "prepare c0 refused")
        await node.delete_and_wait("p")


RUNS: dict[str, Callable[[RecordingNode], Awaitable[None]]] = {
    name.removeprefix("run_"): run for name, run in list(globals().items()) if name.startswith("run_s")
}


def run_scenario(name: str) -> RecordingNode:
    """Run a scenario on a node of its own."""

    async def main(folder: Path) -> RecordingNode:
        async with (
            asyncio.timeout(LONGEST_SECONDS),
            open_server(ServerProcessOptions(folder / "s", "memory:", port=0)) as server,
        ):
            node = RecordingNode(server, folder)
            for driver in node.drivers.values():
                await driver.start()
            try:
                await RUNS[name](node)
            finally:
                for driver in node.drivers.values():
                    await driver.stop()
                await _remove_containers(node)
            return node

    with short_folder() as folder:
        return asyncio.run(main(folder))


async def _remove_containers(node: RecordingNode) -> None:
    runtime = ProcessRuntime(node.root / "containers")
    with contextlib.suppress(FileNotFoundError):
        for found in await runtime.list_containers():
            await runtime.remove(found.id)
    await runtime.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])
def test_the_agent_makes_the_calls_of_the_table(scenario: Scenario) -> None:
    node = run_scenario(scenario.name)
    for name, expected in scenario.get_agent_calls().items():
        driver = node.drivers[name]
        registration, calls = driver.calls[:2], driver.calls[2:]
        assert [call.verb for call in registration] == ["info", "registered"]
        assert kubelet_calls.matches(expected, calls), (name, expected, [str(call) for call in calls])
        for verb, seconds in driver.seconds.items():
            is_short = scenario.name == "s7" and verb.endswith("prepare")
            limit = SHORT_CALL_SECONDS if is_short else kubelet_calls.AGENT_SECONDS[verb]
            # On its way a call loses some of its time, and clocks are not exact.
            assert all(limit / 2 < each < limit * 1.1 for each in seconds), (verb, seconds)
    assert node.running_at_unprepare == [], "a claim is given back only when no container uses it"


@pytest.mark.parametrize(
    ("pattern", "calls", "expected"),
    [
        ("prepare x", [Call("prepare", ("x",))], True),
        ("prepare x", [Call("prepare", ("x",))] * 2, False),
        ("prepare x", [Call("prepare", ("x", "y"))], False),
        ("prepare x", [Call("prepare", ("x",), "refused")], False),
        (
            "prepare x refused+, prepare x",
            [*[Call("prepare", ("x",), "refused")] * 3, Call("prepare", ("x",))],
            True,
        ),
        ("prepare x refused+, prepare x", [Call("prepare", ("x",))], False),
        ("", [], True),
        ("", [Call("info")], False),
    ],
)
def test_rows_match_only_their_calls(pattern: str, calls: list[Call], expected: bool) -> None:
    assert kubelet_calls.matches(pattern, calls) is expected


def test_every_row_says_why_the_agent_differs() -> None:
    assert [bool(each.kubelet_a) for each in SCENARIOS] == [bool(each.why) for each in SCENARIOS]
    assert set(RUNS) == {each.name for each in SCENARIOS}


@pytest.mark.skipif(not RECORD.exists(), reason="no record of a kubelet's calls beside the repository")
def test_the_table_agrees_with_the_record_of_a_kubelet() -> None:
    record = kubelet_calls.read_record(RECORD)
    assert {name: each.what for name, each in record.items()} == {each.name: each.what for each in SCENARIOS}
    for scenario in SCENARIOS:
        for name, pattern in scenario.get_kubelet_calls().items():
            calls = record[scenario.name].calls[name]
            shown = (scenario.name, name, pattern, [str(call) for call in calls])
            assert kubelet_calls.matches(kubelet_calls.drop_hidden_outcomes(pattern), calls), shown
        for verb, seconds in record[scenario.name].seconds.items():
            assert seconds == {kubelet_calls.KUBELET_SECONDS[verb]}
