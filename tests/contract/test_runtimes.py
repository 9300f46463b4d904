"""One suite for everything that runs containers: processes, an OCI runtime, and the pretended ones.

What a container does is said twice, as a command and as annotations for the pretended; what must come of it
is said once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dray.node.containers.runtime.base import (
    ContainerExit,
    ContainerId,
    ContainerLaunch,
    ContainerRuntime,
    ContainerStarted,
)
from dray.node.containers.runtime.fake import EXIT_CODE, RUN_SECONDS, FakeRuntime
from dray.node.containers.runtime.oci import OciRuntime, find_runtime
from dray.wire.cdi import ContainerEdits
from tests.unit.node.containers.runtime.machine import Machine, check_started, machine_in, run, until
from tests.unit.node.containers.runtime.rootfs import lay_out, needs_oci


@dataclass(frozen=True)
class Subject:
    """A runtime under test; `agent` gives one as a new agent on the same machine would have it."""

    machine: Machine
    agent: Callable[[], ContainerRuntime]

    def short(self, code: int = 0, name: str = "main") -> ContainerLaunch:
        """A container that ends by itself."""
        annotations = {RUN_SECONDS: "0.01", EXIT_CODE: str(code)}
        return self.machine.launch("sh", "-c", f"exit {code}", name=name, annotations=annotations)

    def lasting(self, name: str = "main", attempt: int = 0) -> ContainerLaunch:
        """A container that ends when it is asked to."""
        script = "trap 'exit 143' TERM; echo on; while :; do sleep 0.1; done"
        return self.machine.launch("sh", "-c", script, name=name, attempt=attempt)

    async def listens(self, runtime: ContainerRuntime, launch: ContainerLaunch) -> None:
        """Wait until a lasting container can be asked to end."""
        if runtime.name != "fake":
            await until(lambda: launch.log.exists() and launch.log.read_text())


@pytest.fixture(params=["process", "fake", "oci"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with machine_in(tmp_path / "machine") as machine:
        if request.param == "process":
            yield Subject(machine, machine.runtime)
        elif request.param == "fake":
            fake = FakeRuntime()
            yield Subject(machine, lambda: fake)
        else:
            needs_oci()
            rootfs, program = lay_out(tmp_path / "rootfs"), find_runtime()
            yield Subject(machine, lambda: OciRuntime(machine.containers, rootfs, program))


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (3, "Error")])
def test_a_container_ends_with_its_code(subject: Subject, code: int, reason: str):
    async def check() -> ContainerExit:
        runtime = subject.agent()
        return await runtime.wait(check_started(await runtime.start(subject.short(code))))

    exit = run(check())
    assert (exit.code, exit.signal, exit.reason) == (code, 0, reason)
    assert exit.started_at <= exit.finished_at


def test_a_container_runs_until_it_is_stopped(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        launch = subject.lasting()
        container = check_started(await runtime.start(launch))
        waiting = asyncio.create_task(runtime.wait(container))
        await subject.listens(runtime, launch)
        assert not waiting.done()
        await runtime.stop(container, 60)
        assert (await waiting).code == 143

    run(check())


def test_a_container_is_found_with_its_pod(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        lasting, short = subject.lasting("a"), subject.short(5, "b")
        for launch in (lasting, short):
            await runtime.start(launch)
        exit = await runtime.wait(short.id)
        found = {each.id: each for each in await runtime.list_containers()}
        assert {each.pod_name for each in found.values()} == {"train-0"}
        assert {each.namespace for each in found.values()} == {"ml"}
        assert (found[lasting.id].exit, found[short.id].exit) == (None, exit)
        assert found[short.id].started_at == exit.started_at

    run(check())


def test_another_agent_takes_over(subject: Subject):
    async def check() -> None:
        first = subject.agent()
        lasting, short = subject.lasting("a"), subject.short(5, "b")
        for launch in (lasting, short):
            await first.start(launch)
        await first.close()
        second = subject.agent()
        assert {each.id for each in await second.list_containers()} == {lasting.id, short.id}
        assert (await second.wait(short.id)).code == 5
        assert await second.start(lasting) == ContainerStarted(lasting.id)
        await subject.listens(second, lasting)
        await second.stop(lasting.id, 60)
        assert (await second.wait(lasting.id)).code == 143

    run(check())


def test_an_exit_is_the_same_however_often_it_is_asked_for(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        container = check_started(await runtime.start(subject.short(2)))
        first = await runtime.wait(container)
        await runtime.stop(container, 0)
        assert [await runtime.wait(container), await subject.agent().wait(container)] == [first, first]

    run(check())


def test_attempts_are_containers_of_their_own(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        first = check_started(await runtime.start(subject.short(1)))
        await runtime.wait(first)
        second = check_started(await runtime.start(subject.lasting(attempt=1)))
        assert second == ContainerId(first.pod_uid, first.name, 1)
        assert (await runtime.wait(first)).code == 1
        await runtime.remove(first)
        assert [each.id for each in await runtime.list_containers()] == [second]

    run(check())


def test_a_removed_container_is_ended_and_unknown(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        container = check_started(await runtime.start(subject.lasting()))
        await runtime.remove(container)
        assert await runtime.list_containers() == ()
        exit = await runtime.wait(container)
        assert (exit.code, exit.reason) == (137, "ContainerStatusUnknown")
        await runtime.remove(container)
        await runtime.stop(container, 0)

    run(check())


def test_a_removed_container_can_be_started_again(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        for code in (4, 5):
            container = check_started(await runtime.start(subject.short(code)))
            assert (await runtime.wait(container)).code == code
            await runtime.remove(container)

    run(check())


@pytest.mark.req("K3063-140")
def test_edits_of_devices_are_no_reason_not_to_run(subject: Subject):
    async def check() -> None:
        runtime = subject.agent()
        launch = replace(subject.short(), edits=ContainerEdits(env=("GPU=0",)))
        assert (await runtime.wait(check_started(await runtime.start(launch)))).code == 0

    run(check())


def test_many_at_once(subject: Subject):
    async def check() -> list[int]:
        runtime = subject.agent()
        launches = [subject.short(number, f"c{number}") for number in range(8)]
        begins = await asyncio.gather(*(runtime.start(launch) for launch in launches))
        exits = await asyncio.gather(*(runtime.wait(check_started(each)) for each in begins))
        return [exit.code for exit in exits]

    assert run(check()) == list(range(8))
