"""`dray server migrate` as people meet it: the server refuses an old store; one command later it serves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.server import clean_environment, command, running
from tests.outside import ROOT

GOLDEN = ROOT / "tests" / "golden" / "store-v1" / "store.db"


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(0o700)
    shutil.copyfile(GOLDEN, folder / "store.db")
    return folder


def test_the_objects_of_an_old_store_are_served(
    data: Path, tmp_path: Path, home: Path, kubectl_program: str
) -> None:
    store = data / "store.db"
    code, text = run("server", "--data-dir", str(data), "--port", "0")
    assert (code, text.count("\n")) == (2, 1)
    assert f"migrate it with `dray server migrate --store {store}`" in text

    code, text = run("server", "migrate", "--data-dir", str(data), "--dry-run")
    assert (code, text.split(":")[0]) == (0, f"{store} would be converted from format 1 to 2")
    code, text = run("server", "migrate", "--data-dir", str(data))
    assert code == 0, text
    assert f"converted {store} from format 1 to 2: 22 records, everything at revision 18" in text
    assert f"the old file is {store}.format-1" in text
    assert run("server", "migrate", "--data-dir", str(data)) == (
        0,
        f"{store} has format 2 already; nothing to do\n",
    )

    with running(tmp_path) as server:
        kubectl = Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), "default")
        (request,) = kubectl.get("resourceclaim", "train")["spec"]["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == "gpu"
        assert kubectl.get("deviceclass", "gpu")["metadata"]["resourceVersion"] <= "18"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--store", "etcd://127.0.0.1:1/x"), "only files have a format"),
        (("--data-dir", "no-such-directory"), "there is no store `no-such-directory/store.db`"),
    ],
)
def test_what_cannot_be_migrated_is_named(options: tuple[str, ...], message: str) -> None:
    code, text = run("server", "migrate", *options)
    assert (code, text.count("\n")) == (2, 1)
    assert message in text
