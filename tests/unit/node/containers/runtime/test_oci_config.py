"""The configuration for an OCI runtime: a container and what its devices change in it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from dray.node.containers.runtime.base import ContainerLaunch
from dray.node.containers.runtime.oci_config import DeviceFileError, HostFile, RootFilesystem, build_config
from dray.wire.cdi import ContainerEdits, DeviceNode, Hook, Mount

MACHINE = {
    "/dev/gpu0": HostFile(stat.S_IFCHR | 0o660, 195, 7),
    "/dev/disk": HostFile(stat.S_IFBLK | 0o600, 8, 0),
    "/dev/pipe": HostFile(stat.S_IFIFO | 0o600, 0, 0),
    "/dev/file": HostFile(stat.S_IFREG | 0o600, 0, 0),
}


def made(edits: ContainerEdits | None = None, *, writable: bool = True, **more: Any) -> dict[str, Any]:
    fields = {"command": ("run",), "log": Path("log"), "edits": edits or ContainerEdits(), **more}
    launch = ContainerLaunch(pod_uid="u", pod_name="train-0", namespace="ml", name="main", **fields)
    return build_config(launch, RootFilesystem("/root", writable), MACHINE.get)


def test_command_variables_place_and_user():
    document = made(
        ContainerEdits(env=("GPU=1", "A=device"), additional_gids=(44,)),
        args=("fast",),
        env={"A": "pod", "B": "b=c"},
        working_dir="/data",
        user=1000,
        group=100,
    )
    process = document["process"]
    assert process["args"] == ["run", "fast"]
    assert process["env"] == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME=train-0",
        "A=device",
        "B=b=c",
        "GPU=1",
    ]
    assert process["cwd"] == "/data"
    assert process["user"] == {"uid": 1000, "gid": 100, "additionalGids": [44]}
    assert document["hostname"] == "train-0"
    assert document["root"] == {"path": "/root", "readonly": False}


def test_the_machines_network_and_nothing_else_of_it():
    kinds = [each["type"] for each in made()["linux"]["namespaces"]]
    assert kinds == ["pid", "mount", "ipc", "uts"]


@pytest.mark.parametrize(
    ("node", "device", "rule"),
    [
        (
            DeviceNode(path="/dev/gpu0"),
            {"path": "/dev/gpu0", "type": "c", "major": 195, "minor": 7, "fileMode": 0o660},
            {"allow": True, "type": "c", "major": 195, "minor": 7, "access": "rwm"},
        ),
        (
            DeviceNode(
                path="/dev/mine", host_path="/dev/disk", permissions="r", uid=5, gid=6, file_mode=0o640
            ),
            {"path": "/dev/mine", "type": "b", "major": 8, "minor": 0, "fileMode": 0o640, "uid": 5, "gid": 6},
            {"allow": True, "type": "b", "major": 8, "minor": 0, "access": "r"},
        ),
        (
            DeviceNode(path="/dev/not-here", type="c", major=1, minor=3),
            {"path": "/dev/not-here", "type": "c", "major": 1, "minor": 3},
            {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
        ),
        (
            DeviceNode(path="/dev/raw", type="u", major=1, minor=3),
            {"path": "/dev/raw", "type": "u", "major": 1, "minor": 3},
            {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
        ),
    ],
)
def test_device_files_have_the_numbers_of_the_machine_and_may_be_used(
    node: DeviceNode, device: dict[str, Any], rule: dict[str, Any]
):
    linux = made(ContainerEdits(device_nodes=(node,)))["linux"]
    assert linux["devices"] == [device]
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}, rule]


def test_a_pipe_has_no_numbers_and_needs_no_right():
    linux = made(ContainerEdits(device_nodes=(DeviceNode(path="/dev/pipe"),)))["linux"]
    assert linux["devices"] == [{"path": "/dev/pipe", "type": "p", "fileMode": 0o600}]
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (DeviceNode(path="/dev/gone"), "device file `/dev/gone` does not exist"),
        (DeviceNode(path="/dev/gpu0", host_path="/dev/gone"), "device file `/dev/gone` does not exist"),
        (DeviceNode(path="/dev/file"), "device file `/dev/file` is no device"),
    ],
)
def test_a_device_file_that_is_missing_is_named(node: DeviceNode, message: str):
    with pytest.raises(DeviceFileError, match=message):
        made(ContainerEdits(device_nodes=(node,)))


def test_mounts_come_after_those_above_them():
    edits = ContainerEdits(
        mounts=(
            Mount(host_path="/a", container_path="/usr/lib/gpu", options=("ro", "bind")),
            Mount(host_path="/b", container_path="/usr"),
            Mount(host_path="tmpfs", container_path="/usr/tmp/", type="tmpfs", options=("size=1m",)),
        )
    )
    assert made(edits)["mounts"][-3:] == [
        {"destination": "/usr", "type": "bind", "source": "/b", "options": ["rbind"]},
        {"destination": "/usr/tmp/", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]},
        {"destination": "/usr/lib/gpu", "type": "bind", "source": "/a", "options": ["ro", "bind"]},
    ]


def test_a_root_that_is_read_only_has_places_to_write_to():
    own = {mount["destination"] for mount in made(writable=True)["mounts"]}
    more = {mount["destination"] for mount in made(writable=False)["mounts"]}
    assert more - own == {"/tmp", "/run"}


def test_hooks_by_their_moment():
    edits = ContainerEdits(
        hooks=(
            Hook(hook_name="createRuntime", path="/bin/a", args=("a", "x"), env=("E=1",), timeout=3),
            Hook(hook_name="poststop", path="/bin/b"),
            Hook(hook_name="createRuntime", path="/bin/c"),
        )
    )
    assert made(edits)["hooks"] == {
        "createRuntime": [
            {"path": "/bin/a", "args": ["a", "x"], "env": ["E=1"], "timeout": 3},
            {"path": "/bin/c", "args": ["/bin/c"], "env": []},
        ],
        "poststop": [{"path": "/bin/b", "args": ["/bin/b"], "env": []}],
    }


def test_a_host_name_is_not_longer_than_the_machine_allows():
    fields: dict[str, Any] = {"pod_uid": "u", "pod_name": "x" * 200, "namespace": "ml", "name": "main"}
    launch = ContainerLaunch(**fields, log=Path("log"))
    assert build_config(launch, RootFilesystem("/", True), MACHINE.get)["hostname"] == "x" * 63
