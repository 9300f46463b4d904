"""Hostile CDI files: links, pipes, huge files, files of other users, hostile content."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dray.node.containers import cdi
from dray.node.containers.cdi import CdiDeviceError, CdiSpecCache
from dray.wire.cdi import ContainerEdits
from tests.unit.node.containers.test_cdi import KIND, put, spec

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NAME = f"{KIND}=0"


def refused(folder: Path, problem: str) -> None:
    """The device is not given, and the file is named with what is wrong."""
    files = CdiSpecCache((folder,))
    with pytest.raises(CdiDeviceError):
        files.collect_edits((NAME,))
    assert len(files.problems) == 1
    assert problem in files.problems[0]


def test_a_link_is_not_followed(tmp_path: Path):
    real = put(tmp_path / "elsewhere", "a.json", spec("0"))
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "a.json").symlink_to(real)
    refused(tmp_path / "cdi", "is a symbolic link; put the file itself here")


def test_a_link_to_nowhere_and_one_to_itself(tmp_path: Path):
    (tmp_path / "a.json").symlink_to("a.json")
    refused(tmp_path, "is a symbolic link")


def test_a_file_that_becomes_a_link_is_no_longer_read(tmp_path: Path):
    folder = tmp_path / "cdi"
    path = put(folder, "a.json", spec("0"))
    other = put(tmp_path / "elsewhere", "a.json", {**spec("0"), "containerEdits": {"env": ["EVIL=1"]}})
    files = CdiSpecCache((folder,))
    assert files.collect_edits((NAME,)) == ContainerEdits(env=("GPU=0",))
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(CdiDeviceError):
        files.collect_edits((NAME,))


def test_a_pipe_does_not_hold_anybody_up(tmp_path: Path):
    os.mkfifo(tmp_path / "a.json")
    refused(tmp_path, "is not a regular file")


def test_a_directory_named_like_a_spec(tmp_path: Path):
    (tmp_path / "a.json").mkdir()
    refused(tmp_path, "is not a regular file")


def test_a_socket_named_like_a_spec(tmp_path: Path):
    with tempfile.TemporaryDirectory(prefix="dray-") as short, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{short}/a.json")
        refused(Path(short), "No such device or address")


def test_a_giant_is_not_read_whole(tmp_path: Path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(1 << 40)
    refused(tmp_path, f"is larger than {cdi.MAX_FILE_BYTES} bytes")


def test_what_everybody_may_write_is_not_trusted(tmp_path: Path):
    put(tmp_path, "a.json", spec("0")).chmod(0o666)
    refused(tmp_path, "is world-writable")


def test_a_directory_that_everybody_may_write_is_not_trusted(tmp_path: Path):
    put(tmp_path / "cdi", "a.json", spec("0"))
    (tmp_path / "cdi").chmod(0o777)
    refused(tmp_path / "cdi", "is world-writable")


@ROOT_ONLY
def test_files_of_other_users_are_not_trusted(tmp_path: Path):
    os.chown(put(tmp_path, "a.json", spec("0")), 4321, 4321)
    refused(tmp_path, "belongs to user 4321")


def test_a_directory_with_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cdi, "MAX_FILES", 3)
    for number in range(5):
        put(tmp_path, f"{number}.json", spec(str(number)))
    files = CdiSpecCache((tmp_path,))
    assert files.collect_edits((f"{KIND}=2",)) == ContainerEdits(env=("GPU=2",))
    with pytest.raises(CdiDeviceError, match="has 5 files"):
        files.collect_edits((f"{KIND}=4",))


@pytest.mark.parametrize("name", ["a\nb.json", "a;reboot.json", "$(reboot).json", "ü\udcff.json"])
def test_odd_names_of_files_are_names_like_others(tmp_path: Path, name: str):
    put(tmp_path, name, spec("0"))
    assert CdiSpecCache((tmp_path,)).collect_edits((NAME,)) == ContainerEdits(env=("GPU=0",))


@pytest.mark.parametrize(
    "edits",
    [
        {"env": ["NO_VALUE"]},
        {"env": ["A=\0"]},
        {"hooks": [{"hookName": "createRuntime", "path": "reboot"}]},
        {"hooks": [{"hookName": "whenever", "path": "/bin/true"}]},
        {"hooks": [{"hookName": "poststop", "path": "/bin/true", "env": ["x"]}]},
        {"deviceNodes": [{"path": ""}]},
        {"deviceNodes": [{"path": "/dev/x", "type": "z"}]},
        {"deviceNodes": [{"path": "/dev/x", "permissions": "all"}]},
        {"deviceNodes": [{"path": "/dev/x", "major": 10**400}]},
        {"mounts": [{"hostPath": "/", "containerPath": ""}]},
        {"mounts": [{"hostPath": "/\0", "containerPath": "/x"}]},
        {"env": {"A": 1}},
    ],
)
def test_hostile_edits_make_the_file_a_broken_one(tmp_path: Path, edits: dict[str, object]):
    rows = [{"name": "0", "containerEdits": edits}]
    put(tmp_path, "a.json", {"cdiVersion": "0.5.0", "kind": KIND, "devices": rows})
    refused(tmp_path, "a.json: ")


@pytest.mark.parametrize(
    "where", [b'"cdiVersion":"\xff"', b'"kind":"\xc3("', b'"annotations":{"a":"\xed\xa0\x80"}']
)
def test_s10_a_file_that_is_no_text_is_passed_over_and_the_others_are_read(tmp_path: Path, where: bytes):
    put(tmp_path, "good.json", spec("0"))
    (tmp_path / "bad.json").write_bytes(b"{" + where + b',"devices":[]}')
    files = CdiSpecCache((tmp_path,))
    assert files.collect_edits((NAME,)) == ContainerEdits(env=("GPU=0",))
    assert len(files.problems) == 1
    assert "not a CDI spec" in files.problems[0]


def test_deep_and_wide_documents_are_refused_and_not_died_of(tmp_path: Path):
    put(tmp_path, "deep.json", "[" * 100_000)
    put(tmp_path, "deep.yaml", "[" * 5_000)
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    put(tmp_path, "bomb.yaml", bomb)
    put(tmp_path, "good.json", spec("0"))
    files = CdiSpecCache((tmp_path,))
    assert files.collect_edits((NAME,)) == ContainerEdits(env=("GPU=0",))
    assert len(files.problems) == 3


@given(content=some.binary(max_size=300), suffix=some.sampled_from([".json", ".yaml"]))
def test_law_no_content_breaks_the_others(content: bytes, suffix: str):
    with tempfile.TemporaryDirectory(prefix="dray-") as name:
        folder = Path(name)
        (folder / f"odd{suffix}").write_bytes(content)
        put(folder, "good.json", spec("0"))
        assert CdiSpecCache((folder,)).collect_edits((NAME,)) == ContainerEdits(env=("GPU=0",))


@given(name=some.text(max_size=40))
def test_law_no_name_of_a_device_is_ever_a_path(name: str):
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        put(Path(folder), "a.json", spec("0"))
        if name != NAME:
            with pytest.raises(CdiDeviceError):
                CdiSpecCache((Path(folder),)).collect_edits((name,))
        assert json.loads((Path(folder) / "a.json").read_text()) == spec("0")
