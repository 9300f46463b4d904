"""`dray server` as people start it: what is wrong is told in a line, and what was kept is there again."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.cli.app import run
from tests.contract.documents import allocation, claim, resource_slice
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.server import clean_environment, command, running

Refused = Callable[..., str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Starts a server that must not start; the one line in which it says why."""
    monkeypatch.chdir(tmp_path)

    def line(*options: str) -> str:
        assert run(["server", *options]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        (said,) = err.splitlines()
        assert said.startswith("dray: ")
        return str(said)

    return line


def test_a_typo_in_a_flag() -> None:
    wrong = command("server", "--dat-dir", "x")
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dray: no such option `--dat-dir`; did you mean `--data-dir`?\n"


def test_a_port_that_is_taken(tmp_path: Path, refused: Refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refused("--data-dir", "d", "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert "--port" in line
    assert not (tmp_path / "d" / "admin.kubeconfig").exists()


def test_an_address_that_is_not_ours(refused: Refused) -> None:
    line = refused("--data-dir", "d", "--port", "0", "--host", "192.0.2.1")
    assert "192.0.2.1" in line
    assert "--host" in line


@pytest.mark.parametrize("damage", ["foreign", "short", "flipped"])
def test_a_damaged_store(tmp_path: Path, damage: str, refused: Refused) -> None:
    store = tmp_path / "data" / "store.db"
    if damage == "foreign":
        store.parent.mkdir()
        store.write_text("these are my notes, not a store")
    else:
        with running(tmp_path):
            pass
        whole = bytearray(store.read_bytes())
        if damage == "short":
            del whole[len(whole) // 3 :]
        else:
            middle = len(whole) // 2
            whole[middle : middle + 4096] = bytes(byte ^ 0xFF for byte in whole[middle : middle + 4096])
        store.write_bytes(whole)
        for beside in store.parent.glob("store.db-*"):
            beside.unlink()
    before = store.read_bytes()
    line = refused("--data-dir", "data", "--port", "0")
    assert "data/store.db" in line
    assert "restore" in line
    assert store.read_bytes() == before, "a damaged file is left as it is"


def test_a_wrong_address_of_etcd(refused: Refused) -> None:
    pytest.importorskip("grpc", reason="etcd is not supported without grpcio")
    line = refused("--data-dir", "d", "--port", "0", "--store", f"etcd://127.0.0.1:{free_port()}/x")
    assert "no answer from etcd" in line
    assert "check the address" in line


def test_an_address_that_names_no_store(refused: Refused) -> None:
    line = refused("--data-dir", "d", "--port", "0", "--store", "postgres://x")
    assert "`postgres://x` is no store" in line
    assert "etcd://" in line


def test_a_data_directory_that_cannot_be_written(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").write_text("")
    line = refused("--data-dir", "file/below", "--port", "0")
    assert "`file/below`" in line
    assert "--data-dir" in line


def test_a_directory_that_another_server_uses(tmp_path: Path, refused: Refused) -> None:
    with running(tmp_path):
        line = refused("--data-dir", "data", "--port", "0")
    assert "in use by process" in line


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--feature-gates", "Nope=true"], "`Nope`"),
        (["--token-file", "nope"], "`nope`"),
        (["--limit", "nope=1"], "`nope`"),
        (["--port", "high"], "--port"),
    ],
    ids=str,
)
def test_other_mistakes(options: list[str], word: str, refused: Refused) -> None:
    assert word in refused("--data-dir", "d", "--port", "0", *options)


@pytest.fixture
def kubectl_in(tmp_path: Path, kubectl_program: str) -> Kubectl:
    home = tmp_path / "home"
    home.mkdir()
    environment = clean_environment(home, tmp_path / "data" / "admin.kubeconfig")
    return Kubectl(kubectl_program, environment, "default")


def _choices(name: str) -> dict[str, Any]:
    sizes = [{"name": size, "deviceClassName": f"{size}.example.com"} for size in ("big", "small")]
    return claim(name, requests=[{"name": "gpu", "firstAvailable": sizes}])


@pytest.mark.req("K3063-031", "K4816-095")
def test_a_killed_server_forgets_nothing_even_with_a_gate_off(tmp_path: Path, kubectl_in: Kubectl) -> None:
    with running(tmp_path, ends=True) as first:
        kubectl_in("create", "-f", "-", given=[resource_slice("s"), claim("kept"), _choices("old")])
        status = json.dumps({"status": {"allocation": allocation()}})
        kubectl_in("patch", "resourceclaim", "kept", "--subresource=status", "--type=merge", "-p", status)
        stored, old = kubectl_in.get("resourceclaim", "kept"), kubectl_in.get("resourceclaim", "old")
        certificate = first.files["certificate-authority-data"]
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(10)
    with running(tmp_path, "--feature-gates", "DRAPrioritizedList=false") as second:
        assert kubectl_in.get("resourceclaim", "kept") == stored
        assert kubectl_in.get("resourceclaim", "old") == old
        kubectl_in("label", "resourceclaim", "old", "still=here")
        assert kubectl_in.get("resourceclaim", "old")["spec"] == old["spec"]
        refused = kubectl_in("create", "-f", "-", given=_choices("new"), fails=True)
        assert "spec.devices.requests[0]" in refused.err
        assert stored["status"]["allocation"]["devices"]["results"]
        assert second.files["certificate-authority-data"] == certificate


def test_the_server_says_how_to_use_it(
    tmp_path: Path, kubectl_in: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with running(tmp_path) as started:
        assert kubectl_in("get", "resourceslices").err.strip() == "No resources found"
        with capsys.disabled():  # for people to see; on a busy machine it says nothing about us
            print(f" [first `kubectl get resourceslices` after {time.monotonic() - began:.1f} s] ", end="")
        said = started.log.read_text()
    assert f"serving {started.url} from" in said
    assert f"export KUBECONFIG={started.kubeconfig}" in said
    assert "kubectl get resourceslices" in said
    assert started.log.read_text().splitlines()[-1] == "stopped"
    assert started.kubeconfig.stat().st_mode & 0o077 == 0, "keys are for their owner alone"
