"""Pods of the process runtime have users or namespaces of their own, and do not reach the agent's files."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.node.containers.runtime import container_users
from dray.node.containers.runtime.base import ContainerNotStarted, ContainerStarted
from dray.node.containers.runtime.container_users import FIRST_USER, USER_COUNT, PodUsers, choose_user
from dray.node.containers.runtime.process import ProcessRuntime
from dray.wire.cdi import ContainerEdits, DeviceNode, Mount
from tests.unit.node.containers.runtime.machine import (
    UID,
    Machine,
    check_started,
    is_alive,
    machine_in,
    run,
    run_to_exit,
    until,
)

OTHER_UID = "7d1c3a52-91b4-4f0e-a6a5-0c9f3f0b2c11"
OWN_DEVICES = {
    *("fd", "full", "null", "ptmx", "pts", "random", "shm"),
    *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
}
MODES = {"mounts": (True, False), "users": (True, True), "namespaces": (False, False)}
"""Whether the agent can change users, and whether the kernel refuses mounts."""
WITH_MOUNTS = pytest.mark.parametrize("mode", ["mounts", "namespaces"], indirect=True)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How pods are kept apart: by users, which needs root, or by namespaces, which the kernel must allow."""
    changes_users, mounts_refused = MODES[request.param]
    if changes_users and not container_users.can_change_users():
        pytest.skip("only root can give pods users of their own")
    if mounts_refused:
        monkeypatch.setattr(container_users, "_probe_namespaces", _refuse)
    elif problem := asyncio.run(container_users._probe_namespaces(user_namespace=not changes_users)):
        pytest.skip(problem)
    monkeypatch.setattr(container_users, "can_change_users", lambda: changes_users)
    return str(request.param)


async def _refuse(*, user_namespace: bool) -> str:
    return "cannot isolate the container: user namespace: Operation not permitted"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with machine_in(tmp_path) as found:
        yield found


def isolated(machine: Machine) -> ProcessRuntime:
    return ProcessRuntime(machine.containers, users=PodUsers((machine.root,)))


def test_a_container_cannot_read_the_keys_of_its_agent(machine: Machine, mode: str) -> None:
    key = machine.root / "ca.key"
    key.write_text("secret")
    key.chmod(0o600)
    script = "cat $0/ca.key; ls $0/containers; echo x > $0/made; echo done"
    exit = run(run_to_exit(isolated(machine), machine.shell(script)))
    assert exit.code == 0
    said = machine.said()
    assert [line for line in said if line.startswith("stdout")] == ["stdout F done"], said
    assert len(said) == 4, said
    assert not (machine.root / "made").exists()


def test_a_container_has_no_rights_and_no_way_to_gain_them(machine: Machine, mode: str) -> None:
    script = (
        "grep -E '^(NoNewPrivs|CapPrm|CapEff|CapAmb):' /proc/self/status | tr '\\t' ' ';"
        "echo $(ls /proc/self/fd | wc -l) $(cut -d' ' -f6 /proc/$$/stat); id -u; env | cut -d= -f1 | sort"
    )
    os.environ["KUBECONFIG"] = "/secret"
    try:
        assert run(run_to_exit(isolated(machine), machine.shell(script))).code == 0
    finally:
        del os.environ["KUBECONFIG"]
    lines = [line.removeprefix("stdout F ") for line in machine.said()]
    none = "0" * 16
    assert lines[:4] == [f"CapPrm: {none}", f"CapEff: {none}", f"CapAmb: {none}", "NoNewPrivs: 1"]
    # 0, 1, 2 and the directory that `ls` reads.
    assert lines[4].split()[0] == "4"
    assert int(lines[5]) == (os.geteuid() if mode == "namespaces" else choose_user(UID))
    assert lines[6:] == ["HOME", "HOSTNAME", "PATH", "PWD", "TMPDIR"]


def test_a_container_has_a_directory_of_its_own_that_goes_with_it(machine: Machine, mode: str) -> None:
    script = "echo it > $TMPDIR/file; cat $TMPDIR/file; echo out > /dev/stdout; echo $TMPDIR"

    async def try_it() -> str:
        runtime = isolated(machine)
        container = check_started(await runtime.start(machine.shell(script)))
        assert (await runtime.wait(container)).code == 0
        said = machine.said()
        assert said[:2] == ["stdout F it", "stdout F out"]
        await runtime.remove(container)
        return said[2].removeprefix("stdout F ")

    scratch = Path(run(try_it()))
    assert not scratch.exists()


def test_pods_cannot_signal_or_read_each_other(machine: Machine, mode: str) -> None:
    async def try_it() -> None:
        runtime = isolated(machine)
        victim = check_started(await runtime.start(machine.launch("sleep", "1000", env={"TOKEN": "secret"})))
        pid = await _find_main(machine, runtime, victim)
        script = f"kill -9 {pid}; kill -9 {os.getpid()}; cat /proc/{pid}/environ /proc/{pid}/mem; echo done"
        attacker = machine.shell(script, name="attacker", pod_uid=OTHER_UID)
        assert (await run_to_exit(runtime, attacker)).code == 0
        said = machine.said("attacker")
        assert [line for line in said if line.startswith("stdout")] == ["stdout F done"], said
        assert is_alive(pid)

    run(try_it())


async def _find_main(machine: Machine, runtime: ProcessRuntime, container: object) -> int:
    state = machine.containers / str(container) / "state"
    await until(lambda: "main 0" not in state.read_text())
    return int(next(line.split()[1] for line in state.read_text().splitlines() if line.startswith("main")))


@WITH_MOUNTS
def test_a_container_has_the_devices_of_its_claims_and_no_others(machine: Machine, mode: str) -> None:
    device = machine.root / "accel0"
    os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/accel/accel0", host_path=str(device)),))
    script = "head -c 3 /dev/accel/accel0 | od -An -tx1; echo x > /dev/accel/accel0 && echo $(ls /dev)"
    assert run(run_to_exit(isolated(machine), machine.shell(script, edits=edits))).code == 0
    numbers, listed = (line.removeprefix("stdout F ") for line in machine.said())
    assert numbers.split() == ["00", "00", "00"]
    assert set(listed.split()) == {*OWN_DEVICES, "accel"}


def test_a_device_that_does_not_exist_is_named(machine: Machine, mode: str) -> None:
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/none0"),))
    outcome = run(isolated(machine).start(machine.shell("echo up", edits=edits)))
    if mode == "users":
        assert isinstance(outcome, ContainerStarted)
        (note,) = outcome.notes
        assert "device `/dev/none0`" in note
    else:
        assert isinstance(outcome, ContainerNotStarted)
        assert outcome.message.endswith(
            "device file `/dev/none0`, which the container needs: No such file or directory"
        )


@WITH_MOUNTS
@pytest.mark.parametrize("option", ["ro", "rw"])
def test_a_mount_of_a_claim_is_visible_in_a_hidden_directory(mode: str, option: str) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,  # Others may not enter that of the test.
        machine_in(Path(name)) as machine,
    ):
        for name in ("claims", "keys"):
            (machine.root / name).mkdir()
            (machine.root / name).chmod(0o777)
            (machine.root / name / "file").write_text(f"{name}\n")
        path = str(machine.root / "claims")
        edits = ContainerEdits(mounts=(Mount(host_path=path, container_path=path, options=(option,)),))
        script = "cat $0/claims/file; ls $0; echo x > $0/claims/made; test -e $0/claims/made && echo made"
        run(run_to_exit(isolated(machine), machine.shell(script, edits=edits)))
        said = [line for line in machine.said() if line.startswith("stdout")]
        assert said == ["stdout F claims", "stdout F claims", *(["stdout F made"] if option == "rw" else [])]


@WITH_MOUNTS
def test_a_container_sees_no_processes_of_others(machine: Machine, mode: str) -> None:
    script = "ls -d /proc/[0-9]* | while read each; do tr '\\0' ' ' < $each/cmdline; echo; done"
    assert run(run_to_exit(isolated(machine), machine.launch("sh", "-c", script))).code == 0
    said = machine.said()
    assert any("cmdline" in line for line in said)
    own = Path("/proc/self/cmdline").read_text().replace("\0", " ").strip()
    assert not any(own in line for line in said)


def test_a_namespace_of_its_own_does_not_uncover_anything(machine: Machine, mode: str) -> None:
    key = machine.root / "ca.key"
    key.write_text("secret")
    key.chmod(0o600)
    script = (
        'unshare --user --map-root-user --mount sh -c "umount $0; umount -l $0; cat $0/ca.key";'
        "nsenter --mount --target 1 cat $0/ca.key; echo done"
    )
    assert run(run_to_exit(isolated(machine), machine.shell(script))).code == 0
    said = machine.said()
    assert [line for line in said if line.startswith("stdout")] == ["stdout F done"], said


def test_a_stopped_container_ends_with_all_its_processes(machine: Machine, mode: str) -> None:
    async def try_it() -> None:
        runtime = isolated(machine)
        launch = machine.shell(
            "setsid sleep 999 & trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done"
        )
        container = check_started(await runtime.start(launch))
        await until(lambda: machine.log().exists() and "stdout F up" in machine.said())
        children = _list_children(machine.find_shim(container))
        await runtime.stop(container, 30)
        assert (await runtime.wait(container)).code == 3
        assert machine.said() == ["stdout F up", "stdout F bye"]
        assert not [pid for pid in children if is_alive(pid)]

    run(try_it())


def _list_children(pid: int) -> set[int]:
    from dray.node.containers.runtime.shim.processes import find_descendants, list_processes

    return find_descendants({pid}, list_processes())


def test_a_container_may_not_choose_its_user(machine: Machine) -> None:
    refused = run(isolated(machine).start(machine.launch("id", user=0)))
    assert isinstance(refused, ContainerNotStarted)
    assert refused.reason == "CreateContainerConfigError"
    assert refused.message.startswith("securityContext.runAsUser: Invalid value: `0`: ")
    refused = run(isolated(machine).start(machine.launch("id", group=0)))
    assert isinstance(refused, ContainerNotStarted)
    assert refused.message.startswith("securityContext.runAsGroup: Invalid value: `0`: ")


def test_without_namespaces_the_reason_and_a_hint_are_given(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_users, "can_change_users", lambda: False)
    monkeypatch.setattr(container_users, "_probe_namespaces", _refuse)
    refused = run(isolated(machine).start(machine.launch("id")))
    assert isinstance(refused, ContainerNotStarted)
    assert refused.reason == "CreateContainerError"
    assert "Operation not permitted\nhint: start the agent as root" in refused.message
    assert list(machine.containers.iterdir()) == []


def test_pods_have_users_in_the_range_that_nobody_assigns() -> None:
    users = {choose_user(f"pod-{number}") for number in range(1000)}
    assert len(users) == 1000
    assert all(FIRST_USER <= user < FIRST_USER + USER_COUNT < 2**31 for user in users)
