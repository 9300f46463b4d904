"""`dray driver new` and `dray driver conformance`: a driver is written, tested, run and examined."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.kitted import short_folder
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import ENDS_IN, until
from tests.e2e.server import Running, command
from tests.e2e.use_case_cluster import node

LONGEST = 240
NODE = "node-of-drivers"


def typed(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


@contextmanager
def supervised(module: Path, kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """A driver that is started again whenever it ends; the directory in which it registers."""
    registry, log = folder / "registry", folder / "driver.log"
    options = (
        *("--node", NODE, "--kubeconfig", str(kubeconfig), "--plugins", str(folder / "plugins")),
        *("--plugins-registry", str(registry), "--cdi-dir", str(folder / "cdi")),
    )
    loop = f'while :; do "$@"; echo "it ended"; done >> {log} 2>&1'
    process = subprocess.Popen(
        ["/bin/sh", "-c", loop, "sh", sys.executable, str(module), *options],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: registry.is_dir() and any(each.is_socket() for each in registry.iterdir()))
        yield registry
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(ENDS_IN)


@pytest.mark.req("K3063-017")
def test_a_new_driver_is_good_as_it_comes(server: Running, kubectl: Kubectl):
    """It is added to a running cluster without touching anything that runs there."""
    kubectl("apply", "-f", "-", given=node(NODE))
    with short_folder() as folder:
        made = typed("driver", "new", "lamp.example.com", folder=folder)
        assert made.returncode == 0, made.stderr
        project = folder / "lamp-driver"
        assert made.stdout.split() == [
            f"lamp-driver/{name}"
            for name in (
                "README.md",
                "pyproject.toml",
                "lamp_driver.py",
                "test_lamp_driver.py",
                "example.yaml",
                "Containerfile",
            )
        ]
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
        ran = subprocess.run(tests, cwd=project, capture_output=True, text=True, timeout=LONGEST, check=False)
        assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
        linted = typed("lint", "example.yaml", folder=project)
        assert linted.returncode == 0, linted.stdout
        with supervised(project / "lamp_driver.py", server.kubeconfig, folder) as registry:
            until(lambda: NODE in kubectl("get", "resourceslices").out)
            options = ("--kubeconfig", str(server.kubeconfig), "--cdi-dir", str(folder / "cdi"))
            found = typed(
                *("driver", "conformance", str(registry), *options),
                *("--supervised", "-o", "json"),
                folder=folder,
            )
    assert found.returncode == 0, found.stdout + found.stderr
    report = json.loads(found.stdout)
    assert (report["driver"], report["node"], report["good"]) == ("lamp.example.com", NODE, True)
    others = {each["name"]: each["why"] for each in report["checks"] if each["result"] != "yes"}
    assert others == dict.fromkeys(("health", "health-report"), "the driver offers no health stream")
    assert report["strictlyGood"]


def test_a_bad_driver_is_told_what_is_wrong(server: Running, kubectl: Kubectl):
    kubectl("apply", "-f", "-", given=node(NODE))
    with short_folder() as folder:
        module = folder / "bad.py"
        module.write_text(BAD)
        with supervised(module, server.kubeconfig, folder) as registry:
            (socket,) = (each for each in registry.iterdir() if each.is_socket())
            found = typed(
                *("driver", "conformance", str(socket), "--kubeconfig", str(server.kubeconfig)),
                *("--only", "prepare", "--only", "unprepare-unknown"),
                folder=folder,
            )
    assert found.returncode == 1, found.stdout + found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == f"driver bad.example.com on node {NODE}, v1 and v1beta1"
    assert [line.split()[:3] for line in lines if line.startswith(("prepare  ", "unprepare-"))] == [
        ["prepare", "required", "no"],
        ["unprepare-unknown", "required", "yes"],
    ]
    assert any("the lamp is broken" in line for line in lines)
    assert lines[-1] == "required: 1 yes, 1 no"


BAD = """
from dray.driver import Driver, device, run

class Bad(Driver):
    name = "bad.example.com"

    def devices(self):
        yield device("lamp")

    def prepare(self, claim):
        raise ValueError("the lamp is broken")

run(Bad)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no.sock",), "there is no socket `"),
        ((".",), "is a directory with 0 sockets: none; name the one you mean"),
        (("no.sock", "--only", "restrat"), "there is no check `restrat`"),
        (("no.sock", "--restart", "x", "--supervised"), "give --restart or --supervised, not both"),
        (("no.sock", "--parameters", "[1]"), "--parameters: expected a JSON object, got `[1]`"),
        (("no.sock", "--parameters", "{"), "--parameters: expected a JSON object"),
    ],
)
def test_what_cannot_be_examined_is_told(arguments, said, server: Running):
    with short_folder() as folder:
        found = typed("driver", "conformance", *arguments, folder=folder, KUBECONFIG=str(server.kubeconfig))
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr
