"""Private files: what is refused, with which words, and that keys get to OpenSSL without a directory."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

import pytest

from dray.errors import InputError
from dray.private_files import (
    OTHERS_ANY,
    OTHERS_WRITE,
    check_private_directory,
    check_private_file,
    create_memory_directory,
    open_memory_file,
)
from dray.server.auth.authn.certificates import CertificateAuthority

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.mark.parametrize(
    ("mode", "forbidden", "expected"),
    [
        (0o700, OTHERS_WRITE, ""),
        (0o755, OTHERS_WRITE, ""),
        (0o775, OTHERS_WRITE, "has mode 0775, so others may write it; expected 0755\nhint: `chmod 755 "),
        (0o777, OTHERS_WRITE, "has mode 0777, so others may write it; expected 0755\nhint: `chmod 755 "),
        (0o1777, OTHERS_WRITE, "has mode 1777, so others may write it; expected 1755\nhint: `chmod 1755 "),
        (0o700, OTHERS_ANY, ""),
        (
            0o750,
            OTHERS_ANY,
            "has mode 0750, so others may read or write it; expected 0700\nhint: `chmod 700 ",
        ),
    ],
)
def test_a_directory_is_refused_by_its_mode(tmp_path, mode, forbidden, expected):
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    if not expected:
        check_private_directory(directory, forbidden)
        return
    with pytest.raises(InputError, match=re.escape(f"`{directory}` {expected}")):
        check_private_directory(directory, forbidden)


@needs_root
@pytest.mark.parametrize("check", [check_private_directory, check_private_file])
def test_what_belongs_to_another_user_is_refused(tmp_path, check):
    path = tmp_path / "it"
    if check is check_private_directory:
        path.mkdir(mode=0o700)
    else:
        path.touch(mode=0o600)
    os.chown(path, 54321, -1)
    with pytest.raises(InputError) as refused:
        check(path)
    assert str(refused.value) == (
        f"`{path}` belongs to user 54321, expected `root` (0), who runs this process\n"
        f"hint: `chown 0 {path}`, or run as user 54321"
    )


def test_a_link_is_no_private_file(tmp_path):
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "link").symlink_to(tmp_path / "key")
    check_private_file(tmp_path / "key")
    with pytest.raises(InputError, match="link` is a link, expected a regular file"):
        check_private_file(tmp_path / "link")


def test_a_key_is_loaded_without_a_file_in_any_directory(tmp_path, monkeypatch):
    """`tempfile` would fail here: its directory does not exist."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    issued = CertificateAuthority.open(tmp_path / "keys").issue_client_certificate("jane")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with open_memory_file(issued.cert_pem + issued.key_pem) as file:
        context.load_cert_chain(file)
    assert not Path(file).exists()


def test_without_files_in_memory_a_private_directory_is_used(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_memory_file(b"secret") as file:
        assert Path(file).read_bytes() == b"secret"
        assert Path(file).stat().st_mode & 0o777 == 0o600
        assert Path(file).parent.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_memory_is_private_and_removed():
    with create_memory_directory("dray-test-") as name:
        assert Path(name).stat().st_mode & 0o777 == 0o700
    assert not Path(name).exists()
