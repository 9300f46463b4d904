"""Unix sockets: paths that fit, private directories, and nothing removed but sockets."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.errors import InputError
from dray.wire.unix_sockets import (
    MAX_SOCKET_PATH_BYTES,
    build_socket_path,
    remove_stale_socket,
    secure_socket_directory,
)

POD = "0b5e1a7e-5c1f-4c56-9b57-8d5e2c2f6a11"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dray-") as name:
        yield Path(name)


def test_a_path_that_fits_is_the_plain_one() -> None:
    assert build_socket_path(Path("/run/dray"), "gpu.example.com-reg.sock") == Path(
        "/run/dray/gpu.example.com-reg.sock"
    )


@pytest.mark.parametrize("length", range(1, 64))
def test_h04_a_long_name_of_a_driver_and_a_pod_is_still_a_legal_path(folder: Path, length: int) -> None:
    """A path of the driver's name and the pod's uid can be too long to listen at."""
    deep = folder / (
        "d" * (MAX_SOCKET_PATH_BYTES - len(os.fsencode(folder)) - len("/") * 2 - 16 - len(".sock"))
    )
    deep.mkdir()
    path = build_socket_path(deep, f"{'g' * length}-{POD}.sock")
    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    assert path.suffix == ".sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    assert build_socket_path(deep, f"{'g' * length}-{POD}.sock") == path, "the same at every start"
    assert build_socket_path(deep, f"{'g' * length}-{POD[:-1]}2.sock") != path


def test_a_path_of_the_maximum_length_is_not_shortened() -> None:
    directory = Path("/" + "d" * 49)
    name = "n" * (MAX_SOCKET_PATH_BYTES - 51)
    assert len(os.fsencode(directory / name)) == MAX_SOCKET_PATH_BYTES
    assert build_socket_path(directory, name).name == name
    assert build_socket_path(directory, name + "y").name != name + "y"


def test_bytes_count_and_not_letters() -> None:
    path = build_socket_path(Path("/run"), "ü" * 60 + ".sock")
    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    assert path.name != "ü" * 60 + ".sock"


def test_a_directory_that_is_too_long_is_an_error() -> None:
    with pytest.raises(InputError, match=r"may have 107 bytes, .* has 1\d\d; choose a shorter directory"):
        build_socket_path(Path("/" + "d" * 100), "gpu.example.com.sock")


def test_a_directory_is_made_for_its_owner_only(folder: Path) -> None:
    secure_socket_directory(folder / "a" / "b")
    assert (folder / "a" / "b").stat().st_mode & 0o777 == 0o700
    secure_socket_directory(folder / "a" / "b")


def test_a_link_is_not_taken_for_a_directory(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    with pytest.raises(InputError, match="must be a directory of its own, not a link or a file"):
        secure_socket_directory(folder / "link")


def test_a_directory_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(InputError, match=r"belongs to user \d+, not to this one \(12345\)"):
        secure_socket_directory(folder)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_directory_that_others_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(InputError, match="may be written to by others"):
        secure_socket_directory(folder)


def test_an_old_socket_is_removed_and_a_free_path_is_fine(folder: Path) -> None:
    path = folder / "x.sock"
    remove_stale_socket(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    remove_stale_socket(path)
    assert not path.exists()


def test_a_file_that_is_no_socket_stays_and_is_an_error(folder: Path) -> None:
    file, link = folder / "file.sock", folder / "link.sock"
    file.write_text("precious")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "x.sock"))
    link.symlink_to(folder / "x.sock")
    for path in (file, link):
        with pytest.raises(InputError, match="is in the way and is not a socket; remove it"):
            remove_stale_socket(path)
    assert file.read_text() == "precious"
    assert link.is_symlink()
    assert (folder / "x.sock").exists()


def test_a_stale_socket_that_cannot_be_removed_is_an_error_with_the_cause(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "x.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))

    def refuse(_path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(InputError, match=r"the old socket `.*` cannot be removed: Operation not permitted"):
        remove_stale_socket(path)
