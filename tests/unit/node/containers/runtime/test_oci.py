"""Containers of a real OCI runtime: what they see, what devices bring, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.node.containers.runtime import oci
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted
from dray.node.containers.runtime.oci import OciRuntime, OciRuntimeError, find_runtime, sanitize_image_name
from dray.wire.cdi import ContainerEdits, DeviceNode, Hook, Mount
from tests.unit.node.containers.runtime.machine import Machine, check_started, is_alive, run, until
from tests.unit.node.containers.runtime.rootfs import lay_out, needs_oci


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    needs_oci()
    return lay_out(tmp_path / "rootfs")


@pytest.fixture
def runtime(machine: Machine, rootfs: Path) -> Iterator[OciRuntime]:
    runtime = OciRuntime(machine.containers, rootfs, find_runtime())
    yield runtime

    async def swept() -> None:
        for found in await runtime.list_containers():
            await runtime.remove(found.id)

    run(swept())
    assert list((machine.containers / ".runtime").glob("*")) == []
    assert str(machine.root) not in Path("/proc/mounts").read_text()


def said(
    machine: Machine, runtime: OciRuntime, script: str, edits: ContainerEdits | None = None
) -> list[str]:
    """What a container with devices says."""
    launch = machine.launch("sh", "-c", script, edits=edits)

    async def scenario() -> None:
        exit = await runtime.wait(check_started(await runtime.start(launch)))
        assert (exit.code, exit.message) == (0, "")

    run(scenario())
    return [line.removeprefix("stdout F ") for line in machine.said()]


@pytest.mark.req("K3063-007", "K3063-136", "K3063-140", "K3063-176")
def test_everything_a_device_brings_is_in_the_container(machine: Machine, runtime: OciRuntime):
    (machine.root / "library").write_text("of the vendor\n")
    hook = machine.root / "hook"
    hook.write_text(f"#!/bin/sh\ncat > {machine.root}/hooked\n")
    hook.chmod(0o755)
    edits = ContainerEdits(
        env=("GPU=gpu-0",),
        mounts=(Mount(host_path=str(machine.root / "library"), container_path="/usr/gpu/library"),),
        device_nodes=(DeviceNode(path="/dev/gpu0", host_path="/dev/zero", permissions="rw"),),
        hooks=(Hook(hook_name="createRuntime", path=str(hook)),),
        additional_gids=(44,),
    )
    script = (
        "echo $GPU; cat /usr/gpu/library; head -c 5 /dev/gpu0 | wc -c; ls -l /dev/gpu0 | head -c 1; echo; id"
    )
    lines = said(machine, runtime, script, edits)
    assert lines == ["gpu-0", "of the vendor", "5", "c", "uid=0 gid=0 groups=44"]
    assert json.loads((machine.root / "hooked").read_text())["id"] == str(machine.launch("x").id)


def test_devices_that_were_not_given_cannot_be_used(machine: Machine, runtime: OciRuntime):
    """The right to use a device comes with it, and with nothing else."""
    edits = ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/kmsg", type="c", major=1, minor=11, permissions="r"),)
    )
    lines = said(machine, runtime, "{ echo x > /dev/kmsg; } 2>/dev/null || echo refused", edits)
    assert lines == ["refused"]


def test_a_container_sees_only_its_own_processes_and_files(machine: Machine, runtime: OciRuntime):
    script = f"echo $$; hostname; ls {machine.root} 2>/dev/null || echo not here; ls /"
    lines = said(machine, runtime, script)
    assert lines[:3] == ["1", "train-0", "not here"]
    assert set(lines[3:]) >= {"bin", "proc", "sys", "dev", "tmp"}


def test_what_one_container_writes_no_other_sees(machine: Machine, runtime: OciRuntime, rootfs: Path):
    needs_overlays(machine, rootfs)

    async def scenario() -> list[int]:
        codes = []
        for attempt in (0, 1):
            launch = machine.launch("sh", "-c", "[ ! -e /mine ] && touch /mine", attempt=attempt)
            codes.append((await runtime.wait(check_started(await runtime.start(launch)))).code)
        return codes

    assert run(scenario()) == [0, 0]
    assert not (rootfs / "mine").exists()


def needs_overlays(machine: Machine, rootfs: Path) -> None:
    if not oci._can_overlay(machine.containers):
        pytest.skip("this machine cannot lay files over others here")


def test_where_there_are_no_overlays_the_files_are_read_only(
    machine: Machine, runtime: OciRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(oci, "_can_overlay", lambda _: False)
    script = "touch /mine 2>/dev/null || echo refused; touch /run/mine && echo but here"
    assert said(machine, runtime, script) == ["refused", "but here"]


def test_an_image_may_have_files_of_its_own(machine: Machine, tmp_path: Path):
    needs_oci()
    images = tmp_path / "images"
    for image in ("example.com/one:1", "two"):
        (lay_out(images / sanitize_image_name(image)) / "name").write_text(image)
    runtime = OciRuntime(machine.containers, images, find_runtime())

    async def scenario() -> None:
        for number, image in enumerate(("example.com/one:1", "two")):
            launch = machine.launch("cat", "/name", name=f"c{number}", image=image)
            await runtime.wait(check_started(await runtime.start(launch)))
        refused = await runtime.start(machine.launch("true", name="c9", image="../../etc"))
        assert refused == ContainerNotStarted(
            "CreateContainerError",
            f"no files for image `../../etc`: `{images}` is no root of a container and "
            "has no directory `_.._etc`",
        )

    run(scenario())
    assert [machine.said("c0"), machine.said("c1")] == [["stdout P example.com/one:1"], ["stdout P two"]]


@pytest.mark.parametrize(
    ("command", "edits", "words"),
    [
        (("nonsense",), ContainerEdits(), "nonsense"),
        (("true",), ContainerEdits(mounts=(Mount(host_path="/no/such", container_path="/x"),)), "/no/such"),
        (("true",), ContainerEdits(hooks=(Hook(hook_name="createRuntime", path="/no/such"),)), "/no/such"),
    ],
)
def test_an_error_of_the_oci_runtime_is_in_the_exit_message(
    machine: Machine, runtime: OciRuntime, command: tuple[str, ...], edits: ContainerEdits, words: str
):
    async def scenario() -> None:
        launch = machine.launch(*command, edits=edits)
        exit = await runtime.wait(check_started(await runtime.start(launch)))
        assert (exit.code, exit.reason) == (128, "StartError")
        assert words in exit.message

    run(scenario())


def test_a_device_file_that_is_missing_is_a_reason_not_to_start(machine: Machine, runtime: OciRuntime):
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/no-such-gpu"),))
    answer = run(runtime.start(machine.launch("true", edits=edits)))
    assert isinstance(answer, ContainerNotStarted)
    assert "`/dev/no-such-gpu` does not exist" in answer.message
    assert run(runtime.list_containers()) == ()


def lasting(machine: Machine) -> ContainerLaunch:
    return machine.launch("sh", "-c", "sleep 1000 & echo on; sleep 1000")


def test_when_its_shim_is_killed_the_container_is_killed_and_removed(machine: Machine, runtime: OciRuntime):
    async def scenario() -> None:
        container = check_started(await runtime.start(lasting(machine)))
        await until(lambda: machine.log().exists() and machine.said())
        first = int((machine.home(container) / "pid").read_text())
        assert is_alive(first)
        os.kill(machine.find_shim(container), signal.SIGKILL)
        exit = await runtime.wait(container)
        assert (exit.code, exit.reason) == (137, "ContainerStatusUnknown")
        assert not is_alive(first)

    run(scenario())


def test_a_container_that_ignores_sigterm_is_killed(machine: Machine, runtime: OciRuntime):
    async def scenario() -> None:
        container = check_started(await runtime.start(lasting(machine)))
        await until(lambda: machine.log().exists() and machine.said())
        first = int((machine.home(container) / "pid").read_text())
        await runtime.stop(container, 0.2)
        exit = await runtime.wait(container)
        assert (exit.code, exit.signal) == (137, 9)
        assert not is_alive(first)
        program = (str(find_runtime()), "--root", str(machine.containers / ".runtime"), "list", "-q")
        assert subprocess.run(program, capture_output=True, check=True).stdout == b""

    run(scenario())


def test_without_a_command_nothing_is_guessed(machine: Machine, runtime: OciRuntime):
    answer = run(runtime.start(machine.launch()))
    assert isinstance(answer, ContainerNotStarted)
    assert answer.message == "images are not looked into for their command: give the container a command"


def test_there_is_no_runtime(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OciRuntimeError, match="`runc` or `crun` is not on the PATH"):
        find_runtime()
    with pytest.raises(OciRuntimeError, match="`youki` is not on the PATH"):
        find_runtime("youki")


def test_there_are_no_files(machine: Machine, tmp_path: Path):
    with pytest.raises(OciRuntimeError, match="is no directory"):
        OciRuntime(machine.containers, tmp_path / "none", Path("/bin/true"))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox"),
        ("a.b/c:1@sha256:0", "a.b_c_1_sha256_0"),
        ("..", "_"),
        ("../x", "_x"),
        ("", "_"),
    ],
)
def test_names_of_images_are_one_step_of_a_path(image: str, name: str):
    assert sanitize_image_name(image) == name
