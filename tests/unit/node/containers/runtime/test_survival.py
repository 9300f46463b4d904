"""Containers and the ends of others: agents restart, keepers are killed, machines reboot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.node.containers.runtime.base import ContainerExit
from dray.node.containers.runtime.shim import files, processes
from tests.unit.node.containers.runtime.machine import Machine, alive, begun, run, until

AGENT = """
import asyncio, sys
from pathlib import Path
from tests.unit.node.containers.runtime.machine import Machine

async def main():
    machine = Machine(Path(sys.argv[1]))
    await machine.runtime().start(machine.shell(sys.argv[2]))
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@contextlib.contextmanager
def stopped(keeper: int):
    """Hold a keeper still, as a busy machine does."""
    os.kill(keeper, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)


def agent_killed_after_start(machine: Machine, script: str) -> None:
    """A whole agent in a process of its own starts a container and is killed."""
    agent = subprocess.Popen(
        (sys.executable, "-c", AGENT, str(machine.root), script),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[5],
        start_new_session=True,
    )
    assert agent.stdout is not None
    with agent, agent.stdout:
        assert agent.stdout.readline() == b"started\n"
        os.killpg(agent.pid, signal.SIGKILL)


@pytest.mark.req("K3063-186")
def test_a_container_goes_on_when_the_agent_is_killed(machine: Machine):
    agent_killed_after_start(machine, "echo $$ > $0/pid; while [ ! -e $0/go ]; do sleep 0.05; done; exit 9")

    async def scene() -> ContainerExit:
        runtime = machine.runtime()
        (found,) = await runtime.list_containers()
        assert (found.pod_name, found.namespace, found.exit) == ("train-0", "ml", None)
        assert found.id == machine.launch("x").id
        assert alive(machine.number("pid"))
        (machine.root / "go").touch()
        return await runtime.wait(found.id)

    assert run(scene()).code == 9


def test_what_ended_while_no_agent_was_there_is_found_with_its_code(machine: Machine):
    agent_killed_after_start(machine, "echo $$ > $0/pid; while [ ! -e $0/go ]; do sleep 0.05; done; exit 11")

    async def scene() -> None:
        await machine.written("pid")
        (machine.root / "go").touch()
        await until(lambda: not alive(machine.number("pid")))
        (found,) = await machine.runtime().list_containers()
        exit = await machine.runtime().wait(found.id)
        assert found.exit in (None, exit)
        assert (exit.code, exit.reason) == (11, "Error")
        assert exit.started_at == found.started_at

    run(scene())


def test_a_later_agent_can_stop_what_an_earlier_one_started(machine: Machine):
    agent_killed_after_start(machine, "trap 'exit 8' TERM; echo $$ > $0/pid; while :; do sleep 0.05; done")

    async def scene() -> None:
        await machine.written("pid")
        runtime = machine.runtime()
        (found,) = await runtime.list_containers()
        await runtime.stop(found.id, 60)
        assert (await runtime.wait(found.id)).code == 8

    run(scene())


DAEMON = "(setsid sh -c 'echo $$ > '$0'/daemon; exec sleep 1000' &); echo $$ > $0/pid; exec sleep 1000"


def test_when_its_keeper_is_killed_a_container_is_lost_and_ended(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        waiting = asyncio.create_task(runtime.wait(container))
        await asyncio.sleep(0)
        os.kill(machine.keeper_of(container), signal.SIGKILL)
        exit = await waiting
        assert (exit.code, exit.signal, exit.reason) == (137, 0, "ContainerStatusUnknown")
        assert exit.message == "its shim was killed"
        assert not any(map(alive, pids))
        assert [found.exit for found in await machine.runtime().list_containers()] == [exit]

    run(scene())


def test_a_keeper_that_was_killed_meanwhile_is_noticed_by_the_next_agent(machine: Machine):
    async def scene() -> None:
        first = machine.runtime()
        container = begun(await first.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        keeper = machine.keeper_of(container)
        os.kill(keeper, signal.SIGKILL)
        await until(lambda: not alive(keeper))
        (found,) = await machine.runtime().list_containers()
        assert found.exit is not None
        assert found.exit.reason == "ContainerStatusUnknown"
        assert not any(map(alive, pids))
        await first.close()

    run(scene())


def test_stopping_after_the_keeper_was_killed_ends_the_rest(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        os.kill(machine.keeper_of(container), signal.SIGKILL)
        await runtime.stop(container, 60)
        assert not any(map(alive, pids))

    run(scene())


def test_a_keeper_that_stands_still_can_be_stopped(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell("echo $$ > $0/pid; exec sleep 1000")))
        await machine.written("pid")
        with stopped(machine.keeper_of(container)):
            await runtime.stop(container, 30)
        assert (await runtime.wait(container)).code == 143
        assert not alive(machine.number("pid"))

    run(scene())


def test_after_a_reboot_nothing_is_touched_and_everything_is_lost(machine: Machine):
    """The pids of before the reboot belong to others now."""

    async def scene() -> None:
        runtime = machine.runtime()
        launch = machine.shell("exit 0")
        container = begun(await runtime.start(launch))
        await runtime.wait(container)
        with subprocess.Popen(("sleep", "1000"), start_new_session=True) as innocent:
            found = processes.find_process(innocent.pid)
            assert found is not None
            lines = (
                "boot another",
                "started 5",
                f"keeper {innocent.pid} {found[2]}",
                f"main {innocent.pid} 1",
            )
            home = machine.home(container)
            (home / files.EXIT).unlink()
            (home / files.STATE).write_text("\n".join(lines))
            (lost,) = await machine.runtime().list_containers()
            still = alive(innocent.pid)
            innocent.kill()
        assert still
        assert lost.exit is not None
        assert (lost.exit.reason, lost.exit.message) == (
            "ContainerStatusUnknown",
            "the machine was rebooted",
        )
        assert lost.started_at.timestamp() == 5

    run(scene())


def test_a_pid_that_was_given_to_somebody_else_is_not_the_keeper(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        with subprocess.Popen(("sleep", "1000"), start_new_session=True) as innocent:
            boot = f"boot {files.read_boot_id()}"
            lines = (boot, "started 5", f"keeper {innocent.pid} 1", f"main {innocent.pid} 1")
            home = machine.home(container)
            (home / files.EXIT).unlink()
            (home / files.STATE).write_text("\n".join(lines))
            await machine.runtime().stop(container, 60)
            still = alive(innocent.pid)
            innocent.kill()
        assert still
        assert (await machine.runtime().wait(container)).reason == "ContainerStatusUnknown"

    run(scene())


@pytest.mark.parametrize(
    "torn", ["", "boot", "boot x\nkeeper", "boot x\nkeeper 1 x\nmain 1 1\nstarted 1", "\0\xff"]
)
def test_a_torn_state_file_is_a_lost_container(machine: Machine, torn: str):
    async def scene() -> ContainerExit:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        (machine.home(container) / files.EXIT).unlink()
        (machine.home(container) / files.STATE).write_text(torn)
        return await machine.runtime().wait(container)

    assert run(scene()).reason == "ContainerStatusUnknown"


@pytest.mark.parametrize("torn", ["", "code", "code x\nsignal 0", "\0"])
def test_a_torn_exit_file_does_not_say_how_it_ended(machine: Machine, torn: str):
    async def scene() -> ContainerExit:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        (machine.home(container) / files.EXIT).write_text(torn)
        return await machine.runtime().wait(container)

    exit = run(scene())
    assert (exit.code, exit.reason) == (137, "ContainerStatusUnknown")


def test_an_agent_killed_before_it_gave_orders_leaves_no_container(machine: Machine):
    launch = machine.launch("true")
    machine.home(launch.id).mkdir(parents=True)
    assert run(machine.runtime().list_containers()) == ()
    assert not machine.home(launch.id).exists()


def test_an_agent_killed_before_the_keeper_came_leaves_a_lost_container(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        container = begun(await runtime.start(machine.shell("echo ran >> $0/ran")))
        await runtime.wait(container)
        home = machine.home(container)
        for name in (files.STATE, files.EXIT):
            (home / name).unlink()
        (found,) = await machine.runtime().list_containers()
        assert found.exit is not None
        assert found.exit.reason == "ContainerStatusUnknown"

    run(scene())
    assert (machine.root / "ran").read_text() == "ran\n"


def test_no_keeper_is_left_as_a_zombie(machine: Machine):
    async def scene() -> None:
        runtime = machine.runtime()
        for number in range(3):
            container = begun(await runtime.start(machine.shell("exit 0", name=f"c{number}")))
            keeper = machine.keeper_of(container)
            await runtime.wait(container)
            assert not Path(f"/proc/{keeper}").exists()

    run(scene())
