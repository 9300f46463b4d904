"""Containers while agents restart, shims are killed and machines reboot."""

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
from tests.unit.node.containers.runtime.machine import Machine, check_started, is_alive, run, until

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
def suspend(shim: int):
    """Suspend a shim, as a busy machine does."""
    os.kill(shim, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shim, signal.SIGCONT)


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

    async def scenario() -> ContainerExit:
        runtime = machine.runtime()
        (found,) = await runtime.list_containers()
        assert (found.pod_name, found.namespace, found.exit) == ("train-0", "ml", None)
        assert found.id == machine.launch("x").id
        await machine.written("pid")
        assert is_alive(machine.number("pid"))
        (machine.root / "go").touch()
        return await runtime.wait(found.id)

    assert run(scenario()).code == 9


def test_what_ended_while_no_agent_was_there_is_found_with_its_code(machine: Machine):
    agent_killed_after_start(machine, "echo $$ > $0/pid; while [ ! -e $0/go ]; do sleep 0.05; done; exit 11")

    async def scenario() -> None:
        await machine.written("pid")
        (machine.root / "go").touch()
        await until(lambda: not is_alive(machine.number("pid")))
        (found,) = await machine.runtime().list_containers()
        exit = await machine.runtime().wait(found.id)
        assert found.exit in (None, exit)
        assert (exit.code, exit.reason) == (11, "Error")
        assert exit.started_at == found.started_at

    run(scenario())


def test_a_later_agent_can_stop_what_an_earlier_one_started(machine: Machine):
    agent_killed_after_start(machine, "trap 'exit 8' TERM; echo $$ > $0/pid; while :; do sleep 0.05; done")

    async def scenario() -> None:
        await machine.written("pid")
        runtime = machine.runtime()
        (found,) = await runtime.list_containers()
        await runtime.stop(found.id, 60)
        assert (await runtime.wait(found.id)).code == 8

    run(scenario())


DAEMON = "(setsid sh -c 'echo $$ > '$0'/daemon; exec sleep 1000' &); echo $$ > $0/pid; exec sleep 1000"


def test_when_its_shim_is_killed_a_container_is_killed_with_an_unknown_exit(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        waiting = asyncio.create_task(runtime.wait(container))
        await asyncio.sleep(0)
        os.kill(machine.find_shim(container), signal.SIGKILL)
        exit = await waiting
        assert (exit.code, exit.signal, exit.reason) == (137, 0, "ContainerStatusUnknown")
        assert exit.message == "its shim was killed"
        assert not any(map(is_alive, pids))
        assert [found.exit for found in await machine.runtime().list_containers()] == [exit]

    run(scenario())


def test_the_next_agent_notices_a_shim_that_was_killed_meanwhile(machine: Machine):
    async def scenario() -> None:
        first = machine.runtime()
        container = check_started(await first.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        shim = machine.find_shim(container)
        os.kill(shim, signal.SIGKILL)
        await until(lambda: not is_alive(shim))
        (found,) = await machine.runtime().list_containers()
        assert found.exit is not None
        assert found.exit.reason == "ContainerStatusUnknown"
        assert not any(map(is_alive, pids))
        await first.close()

    run(scenario())


def test_stopping_after_the_shim_was_killed_kills_the_rest(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell(DAEMON)))
        await machine.written("pid", "daemon")
        pids = [machine.number("pid"), machine.number("daemon")]
        os.kill(machine.find_shim(container), signal.SIGKILL)
        await runtime.stop(container, 60)
        assert not any(map(is_alive, pids))

    run(scenario())


def test_a_suspended_shim_can_be_stopped(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("echo $$ > $0/pid; exec sleep 1000")))
        await machine.written("pid")
        with suspend(machine.find_shim(container)):
            await runtime.stop(container, 30)
        assert (await runtime.wait(container)).code == 143
        assert not is_alive(machine.number("pid"))

    run(scenario())


def test_after_a_reboot_nothing_is_touched_and_everything_is_lost(machine: Machine):
    """The pids of before the reboot belong to others now."""

    async def scenario() -> None:
        runtime = machine.runtime()
        launch = machine.shell("exit 0")
        container = check_started(await runtime.start(launch))
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
            still = is_alive(innocent.pid)
            innocent.kill()
        assert still
        assert lost.exit is not None
        assert (lost.exit.reason, lost.exit.message) == (
            "ContainerStatusUnknown",
            "the machine was rebooted",
        )
        assert lost.started_at.timestamp() == 5

    run(scenario())


def test_a_reused_pid_is_not_taken_for_the_shim(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        with subprocess.Popen(("sleep", "1000"), start_new_session=True) as innocent:
            boot = f"boot {files.read_boot_id()}"
            lines = (boot, "started 5", f"keeper {innocent.pid} 1", f"main {innocent.pid} 1")
            home = machine.home(container)
            (home / files.EXIT).unlink()
            (home / files.STATE).write_text("\n".join(lines))
            await machine.runtime().stop(container, 60)
            still = is_alive(innocent.pid)
            innocent.kill()
        assert still
        assert (await machine.runtime().wait(container)).reason == "ContainerStatusUnknown"

    run(scenario())


@pytest.mark.parametrize(
    "torn", ["", "boot", "boot x\nkeeper", "boot x\nkeeper 1 x\nmain 1 1\nstarted 1", "\0\xff"]
)
def test_a_torn_state_file_is_a_lost_container(machine: Machine, torn: str):
    async def scenario() -> ContainerExit:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        (machine.home(container) / files.EXIT).unlink()
        (machine.home(container) / files.STATE).write_text(torn)
        return await machine.runtime().wait(container)

    assert run(scenario()).reason == "ContainerStatusUnknown"


@pytest.mark.parametrize("torn", ["", "code", "code x\nsignal 0", "\0"])
def test_a_torn_exit_file_does_not_say_how_it_ended(machine: Machine, torn: str):
    async def scenario() -> ContainerExit:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("exit 0")))
        await runtime.wait(container)
        (machine.home(container) / files.EXIT).write_text(torn)
        return await machine.runtime().wait(container)

    exit = run(scenario())
    assert (exit.code, exit.reason) == (137, "ContainerStatusUnknown")


def test_an_agent_killed_before_it_gave_orders_leaves_no_container(machine: Machine):
    launch = machine.launch("true")
    machine.home(launch.id).mkdir(parents=True)
    assert run(machine.runtime().list_containers()) == ()
    assert not machine.home(launch.id).exists()


def test_an_agent_killed_before_the_shim_started_leaves_a_container_with_an_unknown_exit(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("echo ran >> $0/ran")))
        await runtime.wait(container)
        home = machine.home(container)
        for name in (files.STATE, files.EXIT):
            (home / name).unlink()
        (found,) = await machine.runtime().list_containers()
        assert found.exit is not None
        assert found.exit.reason == "ContainerStatusUnknown"

    run(scenario())
    assert (machine.root / "ran").read_text() == "ran\n"


def test_no_shim_is_left_as_a_zombie(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        for number in range(3):
            container = check_started(await runtime.start(machine.shell("exit 0", name=f"c{number}")))
            shim = machine.find_shim(container)
            await runtime.wait(container)
            assert not Path(f"/proc/{shim}").exists()

    run(scenario())
