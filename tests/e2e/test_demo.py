"""The demo: a cluster that is shown, left to play with, and gone when it is stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import NO_KUBECTL
from tests.outside import ROOT

SCRIPT = str(ROOT / "examples" / "demo.sh")
BIN = Path(sys.executable).parent


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the demo keeps everything in a folder of its own; whatever it started is gone afterwards."""
    surroundings = {
        "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)]),
        "HOME": str(tmp_path),
        "DRAY_DEMO": str(tmp_path / "demo"),
        "LC_ALL": "C.UTF-8",
    }
    try:
        yield surroundings
    finally:
        subprocess.run(["/bin/sh", SCRIPT, "stop"], env=surroundings, timeout=60, check=True)


def demo(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    # Output goes to files: a cluster that stays would keep pipes open.
    folder = Path(environment["HOME"])
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        done = subprocess.run(
            ["/bin/sh", SCRIPT, *arguments],
            cwd=ROOT.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=120,
            check=False,
        )
    texts = [(folder / name).read_text() for name in ("out", "err")]
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def without_kubectl(folder: Path) -> str:
    """A PATH with what scripts need and without kubectl."""
    links = folder / "bin"
    links.mkdir()
    for name in ("sh", "cat", "grep", "sed", "seq", "sleep", "rm", "mkdir", "dirname", "nohup"):
        found = shutil.which(name)
        assert found is not None
        (links / name).symlink_to(found)
    (links / "dray").symlink_to(BIN / "dray")
    return str(links)


@pytest.mark.parametrize("with_kubectl", [True, False], ids=["kubectl", "no kubectl"])
def test_the_demo_leaves_a_cluster_and_takes_it_away(
    environment: dict[str, str], tmp_path: Path, with_kubectl: bool
) -> None:
    if not with_kubectl:
        environment |= {"PATH": without_kubectl(tmp_path), "PYTHON": sys.executable}
    elif shutil.which("kubectl") is None:
        pytest.skip(NO_KUBECTL)
    done = demo(environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nodes: 3, each with the drivers gpu.example.com and nic.example.com" in done.stdout
    assert done.stdout.count("   running   node-") == 7
    assert "GPU_DEVICE_0=gpu-0" in done.stdout  # said by the container
    assert "Pod ml/finetune cannot run yet: no node can satisfy claim ml/four-gpus" in done.stdout
    assert "hint: asking for 3 devices instead of 4" in done.stdout
    kubeconfig = f"{environment['DRAY_DEMO']}/data/admin.kubeconfig"
    assert f"export KUBECONFIG={kubeconfig}" in done.stdout

    process = int((tmp_path / "demo" / "pid").read_text())
    os.kill(process, 0)  # it is there
    ask = [str(BIN / "dray"), "explain", "pod/infer-0", "-n", "ml", "--kubeconfig", kubeconfig]
    asked = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True)
    assert asked.stdout.startswith("Pod ml/infer-0 is on node-")

    stopped = demo(environment, "stop")
    assert stopped.stdout.startswith("stopped the demo")
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert demo(environment, "stop").stdout == "no demo is running\n"


def test_a_demo_that_breaks_says_so_and_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    done = demo({**environment, "DRAY": "false"})
    assert done.returncode == 1
    assert "the demo failed: `dray up` does not start" in done.stderr
    assert not (tmp_path / "demo" / "pid").exists()
