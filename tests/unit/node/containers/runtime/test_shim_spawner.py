"""The fork server of shims: replaced when it is killed, and small."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import dray
from dray.node.containers.runtime.shim import processes
from tests.unit.node.containers.runtime.machine import Machine, check_started, is_alive, run, until

LEAN = """
import sys
before = set(sys.modules)
sys.path.append(sys.argv[1])
from dray.node.containers.runtime.shim import fork_server
print(*sorted(set(sys.modules) - before))
"""
HEAVY = {
    "typing",
    "signal",
    "enum",
    "re",
    "json",
    "socket",
    "subprocess",
    "threading",
    "logging",
    "asyncio",
    "msgspec",
}


def fork_servers() -> set[int]:
    """The fork servers of this process."""
    return {
        pid
        for pid, (parent, _, _) in processes.list_processes().items()
        if parent == os.getpid() and b"shim.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }


def test_a_shim_imports_no_heavy_module_and_nothing_else_of_dray():
    source = str(Path(dray.__file__).parent.parent)
    command = (sys.executable, "-I", "-S", "-c", LEAN, source)
    modules = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert modules & HEAVY == set()
    packages = {"dray", "dray.node", "dray.node.containers", "dray.node.containers.runtime"}
    ours = {name for name in modules if name.startswith("dray")} - packages
    assert {name for name in ours if not name.startswith("dray.node.containers.runtime.shim")} == set()


def test_a_killed_fork_server_is_replaced_and_its_containers_continue(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        before = fork_servers()
        first = check_started(await runtime.start(machine.shell("echo $$ > $0/pid; sleep 1000", name="a")))
        await machine.written("pid")
        (fork_server,) = fork_servers() - before
        os.kill(fork_server, signal.SIGKILL)
        await until(lambda: not is_alive(fork_server))
        second = check_started(await runtime.start(machine.shell("exit 3", name="b")))
        assert (await runtime.wait(second)).code == 3
        assert [found.exit for found in await runtime.list_containers() if found.id == first] == [None]
        assert is_alive(machine.number("pid"))
        await runtime.close()

    run(scenario())


def test_closing_ends_the_fork_server_and_not_the_containers(machine: Machine):
    async def scenario() -> None:
        before = fork_servers()
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("echo $$ > $0/pid; sleep 1000")))
        await machine.written("pid")
        (fork_server,) = fork_servers() - before
        await runtime.close()
        await until(lambda: not is_alive(fork_server))
        assert is_alive(machine.number("pid"))
        assert (await machine.runtime().list_containers())[0].id == container

    run(scenario())


def test_an_agent_that_does_not_close_leaves_no_fork_server(machine: Machine):
    before = fork_servers()
    run(machine.runtime().start(machine.shell("exit 0")))
    gc.collect()
    run(until(lambda: fork_servers() <= before))


def test_a_closed_runtime_can_be_used_again(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        for name in ("a", "b"):
            container = check_started(await runtime.start(machine.shell("exit 2", name=name)))
            assert (await runtime.wait(container)).code == 2
            await runtime.close()

    run(scenario())
