"""The process runtime: environment, exits, and that all processes of a container end."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any

import pytest
import uvloop

from dray.node.containers.runtime.base import ContainerNotStarted
from tests.unit.node.containers.runtime.machine import (
    UID,
    Machine,
    check_started,
    is_alive,
    run,
    run_to_exit,
    until,
)

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run something as somebody else")


@pytest.mark.parametrize(
    ("script", "code", "signal", "reason"),
    [
        ("exit 0", 0, 0, "Completed"),
        ("exit 3", 3, 0, "Error"),
        ("kill -KILL $$", 137, 9, "Error"),
        ("kill -TERM $$", 143, 15, "Error"),
        ("exit 143", 143, 0, "Error"),
    ],
)
def test_an_exit_has_code_and_signal(machine: Machine, script: str, code: int, signal: int, reason: str):
    exit = run(run_to_exit(machine.runtime(), machine.shell(script)))
    assert (exit.code, exit.signal, exit.reason, exit.message) == (code, signal, reason, "")
    assert exit.started_at <= exit.finished_at


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("no-such-program", {}, "cannot execute `no-such-program`: No such file or directory"),
        ("/etc/passwd", {}, "cannot execute `/etc/passwd`: Permission denied"),
        (
            "true",
            {"working_dir": "/no/such/place"},
            "cannot change to the working directory `/no/such/place`: No such file or directory",
        ),
        ("true", {"env": {"A": "\0"}}, "cannot execute `true`: embedded null byte"),
    ],
)
def test_a_command_that_cannot_run_has_an_exit_with_the_reason(
    machine: Machine, command: str, more: dict[str, Any], message: str
):
    exit = run(run_to_exit(machine.runtime(), machine.launch(command, **more)))
    assert (exit.code, exit.reason, exit.message) == (128, "StartError", message)


def test_without_a_command_nothing_is_guessed(machine: Machine):
    answer = run(machine.runtime().start(machine.launch(args=("--fast",))))
    assert answer == ContainerNotStarted(
        "CreateContainerConfigError",
        "the process runtime runs commands of this machine and does not look at image `trainer:1`: "
        "give the container a command",
    )
    assert list(machine.containers.iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".", "..", "", "a\nb", "a_b", "x" * 300])
def test_a_name_cannot_lead_out_of_the_directory(machine: Machine, name: str):
    answer = run(machine.runtime().start(machine.launch("true", name=name, log=machine.root / "log")))
    assert isinstance(answer, ContainerNotStarted)
    assert answer.reason == "CreateContainerConfigError"
    assert list(machine.containers.iterdir()) == []


def test_a_container_has_its_own_variables_and_none_of_the_agent(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "1")
    launch = machine.launch("env", env={"MODEL": "a b", "HOME": "/data"}, working_dir=str(machine.root))
    assert run(run_to_exit(machine.runtime(), launch)).code == 0
    home = machine.home(launch.id)
    assert sorted(machine.said()) == [
        "stdout F HOME=/data",
        "stdout F HOSTNAME=train-0",
        "stdout F MODEL=a b",
        "stdout F PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"stdout F TMPDIR={home}/tmp",
    ]


def test_arguments_follow_the_command_and_files_of_the_agent_stay_closed(machine: Machine):
    with (machine.root / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        launch = machine.launch("sh", "-c", 'echo "$@"; pwd; ls /proc/self/fd', args=("sh", "a b", "c"))
        run(run_to_exit(machine.runtime(), launch))
    listing = 3
    assert machine.said() == [f"stdout F {line}" for line in ("a b c", "/", 0, 1, 2, listing)]


def test_a_container_is_not_started_twice(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        launch = machine.shell("echo once >> $0/count; sleep 1000")
        assert await runtime.start(launch) == await runtime.start(launch)
        await machine.written("count")
        assert [found.id for found in await runtime.list_containers()] == [launch.id]
        await runtime.stop(launch.id, 0)

    run(scenario())
    assert (machine.root / "count").read_text() == "once\n"


def test_a_container_that_is_only_starting_is_there_already(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        launch = machine.shell("sleep 1000")
        starting = asyncio.create_task(runtime.start(launch))
        while not (found := await runtime.list_containers()):
            await asyncio.sleep(0)
        assert [(each.id, each.exit) for each in found] == [(launch.id, None)]
        assert check_started(await starting) == launch.id
        await runtime.stop(launch.id, 0)
        assert (await runtime.wait(launch.id)).code == 137

    run(scenario())


def test_a_start_that_was_given_up_can_be_cleared_away(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        launch = machine.shell("echo $$ > $0/pid; sleep 1000")
        starting = asyncio.create_task(runtime.start(launch))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await runtime.remove(launch.id)
        assert await runtime.list_containers() == ()
        if (machine.root / "pid").exists() and (machine.root / "pid").read_text():
            assert not is_alive(machine.number("pid"))

    run(scenario())


def test_a_stop_asks_first(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        script = "trap 'echo asked; exit 7' TERM; echo $$ > $0/pid; while :; do sleep 0.05; done"
        container = check_started(await runtime.start(machine.shell(script)))
        await machine.written("pid")
        await runtime.stop(container, 60)
        exit = await runtime.wait(container)
        assert (exit.code, exit.signal) == (7, 0)
        assert not is_alive(machine.number("pid"))

    run(scenario())
    assert machine.said() == ["stdout F asked"]


def test_a_container_that_ignores_sigterm_is_killed_with_its_descendants(machine: Machine):
    """Also what has left its session and its parents, as daemons do."""

    async def scenario() -> None:
        runtime = machine.runtime()
        daemon = "trap '' TERM HUP; echo $$ > $0/daemon; sleep 1000"
        script = (
            f"trap '' TERM; (setsid sh -c \"{daemon.replace('$', chr(92) + '$')}\" $0 &) ; "
            "sleep 1000 & echo $! > $0/child; echo $$ > $0/pid; sleep 1000; sleep 1000"
        )
        container = check_started(await runtime.start(machine.shell(script)))
        await machine.written("daemon", "child", "pid")
        pids = [machine.number(name) for name in ("daemon", "child", "pid")]
        assert all(map(is_alive, pids))
        await runtime.stop(container, 0.2)
        exit = await runtime.wait(container)
        assert (exit.code, exit.signal, exit.reason) == (137, 9, "Error")
        assert not any(map(is_alive, pids))

    run(scenario())


def test_when_the_first_process_ends_the_rest_is_ended(machine: Machine):
    script = (
        "(setsid sh -c 'echo $$ > '$0'/left; exec sleep 1000' &); while [ ! -s $0/left ]; do :; done; exit 5"
    )
    exit = run(run_to_exit(machine.runtime(), machine.shell(script)))
    assert (exit.code, exit.reason) == (5, "Error")
    assert not is_alive(machine.number("left"))


def test_the_log_is_complete_when_the_exit_is_written(machine: Machine):
    run(run_to_exit(machine.runtime(), machine.shell("seq 1 20000; echo done >&2")))
    assert machine.said()[-2:] in (["stdout F 20000", "stderr F done"], ["stderr F done", "stdout F 20000"])
    assert len(machine.said()) == 20001


def test_signals_reach_the_first_process(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        script = (
            "trap 'echo one' USR1; trap 'echo two; exit' HUP; echo 1 > $0/on; while :; do sleep 0.05; done"
        )
        container = check_started(await runtime.start(machine.shell(script)))
        await machine.written("on")
        shim = machine.find_shim(container)
        os.kill(shim, 10)
        await until(lambda: machine.said() == ["stdout F one"])
        os.kill(shim, 1)
        assert (await runtime.wait(container)).code == 0

    run(scenario())
    assert machine.said() == ["stdout F one", "stdout F two"]


def test_thirty_at_once(machine: Machine):
    async def scenario() -> list[int]:
        runtime = machine.runtime()
        launches = [machine.shell(f"echo {n}; exit {n}", name=f"c{n}") for n in range(30)]
        exits = await asyncio.gather(*(run_to_exit(runtime, launch) for launch in launches))
        return [exit.code for exit in exits]

    assert run(scenario()) == list(range(30))
    assert [machine.said(f"c{n}") for n in range(30)] == [[f"stdout F {n}"] for n in range(30)]


def test_many_may_wait_and_a_wait_may_be_given_up(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(await runtime.start(machine.shell("sleep 1000")))
        waits = [asyncio.create_task(runtime.wait(container)) for _ in range(5)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await runtime.stop(container, 0)
        exits = await asyncio.gather(*waits[1:])
        assert {exit.code for exit in exits} == {137}

    run(scenario())


def test_an_unknown_container(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        launch = machine.launch("true")
        await runtime.stop(launch.id, 10)
        await runtime.remove(launch.id)
        exit = await runtime.wait(launch.id)
        assert (exit.code, exit.reason) == (137, "ContainerStatusUnknown")

    run(scenario())


def test_the_loop_of_the_services_does_it_too(machine: Machine):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run_to_exit(machine.runtime(), machine.shell("exit 4"))).code == 4


def test_the_files_of_a_container_are_private(machine: Machine):
    launch = machine.shell("exit 0", env={"TOKEN": "secret"})
    run(run_to_exit(machine.runtime(), launch))
    home = machine.home(launch.id)
    assert stat.S_IMODE(machine.containers.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "orders").stat().st_mode) == 0o600
    assert stat.S_IMODE(launch.log.stat().st_mode) & 0o007 == 0


def test_a_log_that_cannot_be_written_is_a_reason_not_to_start(machine: Machine):
    (machine.root / "logs").write_text("a file")
    answer = run(machine.runtime().start(machine.launch("true")))
    assert isinstance(answer, ContainerNotStarted)
    assert "Not a directory" in answer.message or "File exists" in answer.message
    assert list(machine.containers.iterdir()) == []


def test_a_log_is_never_written_through_a_link(machine: Machine):
    victim = machine.root / "victim"
    victim.write_text("precious")
    machine.log().parent.mkdir(parents=True)
    machine.log().symlink_to(victim)
    answer = run(machine.runtime().start(machine.launch("echo", "overwritten")))
    assert isinstance(answer, ContainerNotStarted)
    assert victim.read_text() == "precious"


@ROOT_ONLY
def test_a_container_can_run_as_another_user(machine: Machine):
    launch = machine.launch("sh", "-c", "id -u; id -g; id -G; umask", user=4321, group=1234)
    run(run_to_exit(machine.runtime(), launch))
    assert machine.said() == [f"stdout F {line}" for line in ("4321", "1234", "1234", "0022")]


def test_removing_takes_everything_but_the_log(machine: Machine):
    async def scenario() -> None:
        runtime = machine.runtime()
        container = check_started(
            await runtime.start(machine.shell("echo $$ > $0/pid; touch $TMPDIR/x; sleep 1000"))
        )
        await machine.written("pid")
        await runtime.remove(container)
        assert not is_alive(machine.number("pid"))
        assert await runtime.list_containers() == ()

    run(scenario())
    assert list(machine.containers.iterdir()) == []
    assert machine.log().exists()
    assert machine.launch("true").id.pod_uid == UID
