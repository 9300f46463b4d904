"""CDI files of a node: precedence, the edits of devices, and errors for missing ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dray.node.containers.cdi import CdiDeviceError, CdiSpecCache
from dray.wire.cdi import ContainerEdits, DeviceNode, Hook, Mount

KIND = "gpu.example.com/gpu"


def spec(*devices: str, kind: str = KIND, **more: Any) -> dict[str, Any]:
    """A spec whose devices each bring a variable of their name."""
    rows = [{"name": name, "containerEdits": {"env": [f"GPU={name}"]}} for name in devices]
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": rows, **more}


def put(folder: Path, name: str, content: dict[str, Any] | str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "etc", tmp_path / "run"


@pytest.mark.req("K3063-136", "K3063-140")
def test_edits_come_in_the_order_of_the_names_and_those_of_a_spec_once(folders: tuple[Path, Path]):
    put(folders[0], "a.json", spec("0", "1", containerEdits={"env": ["ALL=a"]}))
    put(folders[0], "b.json", spec("x", kind="nic.example.com/nic", containerEdits={"env": ["ALL=b"]}))
    names = [f"{KIND}=1", "nic.example.com/nic=x", f"{KIND}=0", f"{KIND}=1"]
    assert CdiSpecCache(folders).collect_edits(names) == ContainerEdits(
        env=("ALL=a", "GPU=1", "ALL=b", "GPU=x", "GPU=0")
    )


def test_no_devices_no_edits_and_nothing_is_looked_at():
    assert CdiSpecCache((Path("/no/such"),)).collect_edits(()) == ContainerEdits()


def test_everything_a_device_can_bring_arrives(folders: tuple[Path, Path]):
    edits = {
        "deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/zero", "permissions": "rw"}],
        "mounts": [{"hostPath": "/opt", "containerPath": "/usr/opt", "options": ["ro", "bind"]}],
        "hooks": [{"hookName": "createRuntime", "path": "/bin/hook", "args": ["hook", "x"], "timeout": 3}],
        "additionalGids": [44],
    }
    rows = [{"name": "0", "containerEdits": edits}]
    put(folders[1], "a.json", {"cdiVersion": "0.7.0", "kind": KIND, "devices": rows})
    assert CdiSpecCache(folders).collect_edits((f"{KIND}=0",)) == ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/gpu0", host_path="/dev/zero", permissions="rw"),),
        mounts=(Mount(host_path="/opt", container_path="/usr/opt", options=("ro", "bind")),),
        hooks=(Hook(hook_name="createRuntime", path="/bin/hook", args=("hook", "x"), timeout=3),),
        additional_gids=(44,),
    )


def test_yaml_is_read_like_json(folders: tuple[Path, Path]):
    text = f'cdiVersion: 0.5.0\nkind: {KIND}\ndevices:\n- name: "0"\n  containerEdits:\n    env: [GPU=yaml]\n'
    put(folders[0], "a.yaml", text)
    assert CdiSpecCache(folders).collect_edits((f"{KIND}=0",)) == ContainerEdits(env=("GPU=yaml",))


def test_a_later_directory_goes_before_an_earlier_one(folders: tuple[Path, Path]):
    put(folders[0], "a.json", spec("0", "1"))
    put(folders[1], "z.json", {**spec("0"), "containerEdits": {"env": ["FROM=run"]}})
    files = CdiSpecCache(folders)
    assert files.collect_edits((f"{KIND}=0",)) == ContainerEdits(env=("FROM=run", "GPU=0"))
    assert files.collect_edits((f"{KIND}=1",)) == ContainerEdits(env=("GPU=1",))


def test_two_files_that_describe_a_device_are_both_named(folders: tuple[Path, Path]):
    first, second = put(folders[0], "a.json", spec("0")), put(folders[0], "b.json", spec("0", "1"))
    files = CdiSpecCache(folders)
    with pytest.raises(CdiDeviceError) as told:
        files.collect_edits((f"{KIND}=0",))
    assert str(told.value) == (
        f"CDI device `{KIND}=0` is described twice, in `{first}` and `{second}`: remove one of them"
    )
    assert files.collect_edits((f"{KIND}=1",)) == ContainerEdits(env=("GPU=1",))
    put(folders[1], "a.json", spec("0"))
    assert files.collect_edits((f"{KIND}=0",)) == ContainerEdits(env=("GPU=0",))


def test_a_device_without_a_spec_is_an_error(folders: tuple[Path, Path]):
    put(folders[0], "a.json", spec("0"))
    broken = put(folders[1], "b.json", "{")
    with pytest.raises(CdiDeviceError) as told:
        CdiSpecCache(folders).collect_edits((f"{KIND}=0", f"{KIND}=7"))
    where = f"`{folders[0]}`, `{folders[1]}`"
    assert str(told.value).startswith(
        f"CDI device `{KIND}=7` is not described in any file of {where}; skipped {broken}: "
    )


@pytest.mark.parametrize(
    "name", ["", "gpu", "gpu=0", "gpu.example.com/gpu", "a/b/c=0", f"{KIND}=../../etc/passwd", f"{KIND}=a/b"]
)
def test_a_name_that_is_none_is_refused(folders: tuple[Path, Path], name: str):
    put(folders[0], "a.json", spec("0"))
    with pytest.raises(CdiDeviceError, match=r"CDI device|a device is named"):
        CdiSpecCache(folders).collect_edits((name,))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", "{", "not a CDI spec"),
        ("a.json", "[]", "not a CDI spec"),
        ("a.json", json.dumps({**spec("0"), "cdiVersion": "9.0.0"}), "cdiVersion: `9.0.0`"),
        ("a.json", json.dumps({**spec("0"), "kind": "gpu"}), "kind: `gpu` is not `vendor/class`"),
        ("a.json", json.dumps(spec()), "devices: expected at least one"),
        ("a.json", json.dumps(spec("0", "0")), "`0` is there twice"),
        ("a.yaml", "a: [", "a.yaml:"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "found 2 documents"),
        ("a.yaml", "- 1\n", "expected one CDI spec"),
    ],
)
def test_a_broken_file_is_reported_once_and_skipped(
    folders: tuple[Path, Path], name: str, content: str, problem: str
):
    path = put(folders[0], name, content)
    put(folders[0], "good.json", spec("1"))
    told: list[str] = []
    files = CdiSpecCache(folders, told.append)
    for _ in range(3):
        assert files.collect_edits((f"{KIND}=1",)) == ContainerEdits(env=("GPU=1",))
    assert len(told) == 1
    assert told[0].startswith(f"{path}: ")
    assert problem in told[0]
    assert files.problems == tuple(told)
    put(folders[0], name, "{}")
    files.collect_edits((f"{KIND}=1",))
    assert len(told) == 2


def test_files_are_read_again_only_when_they_changed(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    path = put(folders[0], "a.json", spec("0"))
    files = CdiSpecCache(folders)
    opened: list[str] = []
    real = os.open

    def noted(path: Any, *arguments: Any, **named: Any) -> int:
        opened.append(str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", noted)
    for _ in range(5):
        files.collect_edits((f"{KIND}=0",))
    assert opened == [str(path)]
    fresh = folders[0] / ".a.json.new"
    fresh.write_text(json.dumps({**spec("0"), "containerEdits": {"env": ["NEW=1"]}}))
    fresh.replace(path)
    assert files.collect_edits((f"{KIND}=0",)) == ContainerEdits(env=("NEW=1", "GPU=0"))
    path.unlink()
    with pytest.raises(CdiDeviceError):
        files.collect_edits((f"{KIND}=0",))


def test_drafts_and_foreign_files_are_not_looked_at(folders: tuple[Path, Path]):
    for name in (".a.json", ".a.json.123", "a.json~", "a.txt", "a.jsonx"):
        put(folders[0], name, spec("0"))
    files = CdiSpecCache(folders)
    with pytest.raises(CdiDeviceError):
        files.collect_edits((f"{KIND}=0",))
    assert files.problems == ()
