"""Devices of containers that are processes: variables, hooks, and unsupported edits."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from dray.node.containers.runtime.base import ContainerStarted
from dray.wire.cdi import ContainerEdits, DeviceNode, Hook, Mount
from tests.unit.node.containers.runtime.machine import Machine, run, run_to_exit

MOMENTS = ("createRuntime", "createContainer", "startContainer", "poststart", "poststop")


def program(machine: Machine, name: str, script: str) -> str:
    """A program of a vendor."""
    path = machine.root / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def hooks(machine: Machine, script: str, **more: Any) -> tuple[Hook, ...]:
    path = program(machine, "hook", script)
    return tuple(Hook(hook_name=name, path=path, args=("hook", name), **more) for name in reversed(MOMENTS))


@pytest.mark.req("K3063-007", "K3063-176")
def test_variables_of_devices_win_and_stay_in_order(machine: Machine):
    edits = ContainerEdits(env=("GPU=0", "GPU=1", "LINK=a=b"))
    launch = machine.launch(
        "sh", "-c", "echo $GPU $LINK $MODEL", env={"GPU": "none", "MODEL": "m"}, edits=edits
    )
    run(run_to_exit(machine.runtime(), launch))
    assert machine.said() == ["stdout F 1 a=b m"]


def test_hooks_run_at_their_moments_with_the_state_of_the_container(machine: Machine):
    record = machine.root / "record"
    script = f'echo "$1 $(cat) $NAME" >> {record}; [ $1 = startContainer ] && echo before >> {record}'
    edits = ContainerEdits(hooks=hooks(machine, script + "; true", env=("NAME=gpu",)))
    launch = machine.shell(f"echo container >> {record}; sleep 0.5", edits=edits)
    assert run(run_to_exit(machine.runtime(), launch)).code == 0
    lines = record.read_text().splitlines()
    told = {
        line.split()[0]: json.loads(line.split(" ", 1)[1].rpartition(" ")[0]) for line in lines if "{" in line
    }
    order = [line.split()[0] for line in lines]
    assert order[:4] == ["createRuntime", "createContainer", "startContainer", "before"]
    assert sorted(order[4:6]) == ["container", "poststart"]
    assert order[6:] == ["poststop"]
    assert [told[name]["status"] for name in MOMENTS] == [
        "created",
        "created",
        "created",
        "running",
        "stopped",
    ]
    pids = {told[name]["pid"] for name in MOMENTS[:4]}
    assert len(pids) == 1
    assert told["createRuntime"]["id"] == str(launch.id)
    assert told["poststop"]["pid"] == 0
    assert all(line.endswith(" gpu") for line in lines if "{" in line)


@pytest.mark.parametrize("moment", MOMENTS[:3])
def test_a_hook_that_fails_keeps_the_container_from_running(machine: Machine, moment: str):
    script = f"[ $1 = {moment} ] && echo no such gpu >&2 && exit 4; echo $1 >> {machine.root}/order"
    edits = ContainerEdits(hooks=hooks(machine, script))
    exit = run(run_to_exit(machine.runtime(), machine.shell("echo ran > $0/ran", edits=edits)))
    assert (exit.code, exit.reason) == (128, "StartError")
    assert exit.message == f"hook {moment}: `{machine.root}/hook` ended with code 4: no such gpu"
    assert not (machine.root / "ran").exists()
    assert (machine.root / "order").read_text().split()[-1] == "poststop"


def test_a_hook_after_the_start_cannot_fail_the_container(machine: Machine):
    edits = ContainerEdits(hooks=hooks(machine, "case $1 in post*) exit 1;; esac"))
    launch = machine.shell("exit 0", edits=edits)
    assert run(run_to_exit(machine.runtime(), launch)).code == 0
    notes = (machine.home(launch.id) / "keeper.log").read_text()
    assert "hook poststart:" in notes
    assert "hook poststop:" in notes


def test_a_hook_that_takes_too_long_is_ended(machine: Machine):
    edits = ContainerEdits(
        hooks=(Hook(hook_name="createRuntime", path=program(machine, "slow", "exec sleep 1000"), timeout=1),)
    )
    exit = run(run_to_exit(machine.runtime(), machine.shell("exit 0", edits=edits)))
    assert exit.message == f"hook createRuntime: `{machine.root}/slow` took too long and was killed"


def test_a_hook_that_is_not_there_is_named(machine: Machine):
    edits = ContainerEdits(hooks=(Hook(hook_name="createRuntime", path="/no/such/hook"),))
    exit = run(run_to_exit(machine.runtime(), machine.shell("exit 0", edits=edits)))
    assert exit.message == "hook createRuntime: cannot run `/no/such/hook`: No such file or directory"


def test_hooks_do_not_get_the_agents_variables(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "1")
    path = program(machine, "hook", f"/usr/bin/env > {machine.root}/env")
    edits = ContainerEdits(hooks=(Hook(hook_name="createRuntime", path=path, env=("A=1",)),))
    assert run(run_to_exit(machine.runtime(), machine.shell("exit 0", edits=edits))).code == 0
    variables = dict(line.split("=", 1) for line in (machine.root / "env").read_text().splitlines())
    assert set(variables) - {"PWD", "SHLVL", "_", "OLDPWD"} == {"A"}


def test_edits_that_a_process_cannot_have_are_named_in_one_note(machine: Machine):
    edits = ContainerEdits(
        mounts=(
            Mount(host_path="/srv/lib", container_path="/usr/lib/gpu"),
            Mount(host_path="/etc/hosts", container_path="/etc/hosts"),
        ),
        device_nodes=(
            DeviceNode(path="/dev/gpu0", host_path="/dev/zero"),
            DeviceNode(path="/dev/null"),
        ),
    )

    async def scenario() -> ContainerStarted:
        runtime = machine.runtime()
        answer = await runtime.start(machine.shell("exit 0", edits=edits))
        assert isinstance(answer, ContainerStarted)
        await runtime.wait(answer.id)
        return answer

    assert run(scenario()).notes == (
        "the process runtime cannot apply mount of `/srv/lib` at `/usr/lib/gpu`, "
        "device `/dev/zero` at `/dev/gpu0`",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can join groups")
def test_groups_of_devices_are_joined(machine: Machine):
    launch = machine.launch("id", "-G", edits=ContainerEdits(additional_gids=(44, 109)))
    run(run_to_exit(machine.runtime(), launch))
    assert machine.said() == ["stdout F 0 44 109"]
