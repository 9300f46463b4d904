"""`dray driver`: valid names, existing files that are kept, and restarts of drivers."""

from __future__ import annotations

import ast
import asyncio
import signal
import socket
import subprocess
import sys

import pytest
import yaml

from dray.cli.commands.drivers import driver_conformance
from dray.driver.skeleton import build_project_names, render_project
from dray.errors import InputError
from tests.contract.kitted import short_folder
from tests.e2e.patience import SOON
from tests.unit.cli.conftest import Typed

LISTENS = """
import socket, sys, time

line = socket.socket(socket.AF_UNIX)
line.bind(sys.argv[1])
line.listen()
print("here", flush=True)
time.sleep(60)
"""


def test_a_project_is_written_where_it_is_wanted(typed: Typed, desk):
    made = typed("driver", "new", "gpu.example.com", "mine/gpu")
    assert made.code == 0
    assert sorted(path.name for path in (desk / "mine" / "gpu").iterdir()) == [
        "README.md",
        "example.yaml",
        "gpu_driver.py",
        "pyproject.toml",
        "test_gpu_driver.py",
    ]
    assert "pytest" in made.err


def test_a_path_that_cannot_be_written_is_reported(typed: Typed, desk):
    (desk / "file").touch()
    (desk / "link").symlink_to("nowhere")
    for place, why in (
        ("file/below", "cannot write to `file/below`: Not a directory"),
        ("/proc/nowhere", "cannot write to `/proc/nowhere`: No such file or directory"),
        ("link", "`link` is there already; nothing was written. Name another directory"),
    ):
        made = typed("driver", "new", "gpu.example.com", place)
        assert (made.code, made.out, made.err) == (2, "", f"dray: {why}\n")


def test_the_hint_can_be_typed(typed: Typed, desk):
    assert "cd 'my drivers/gpu'; " in typed("driver", "new", "gpu.example.com", "my drivers/gpu").err


@pytest.mark.parametrize("there", ["file", "folder"])
def test_what_is_there_is_left_alone(typed: Typed, desk, there):
    place = desk / "gpu-driver"
    if there == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "gpu_driver.py").write_text("mine")
    made = typed("driver", "new", "gpu.example.com")
    assert (made.code, made.out) == (2, "")
    assert "`gpu-driver` is there already; nothing was written" in made.err
    assert (place if there == "file" else place / "gpu_driver.py").read_text() == "mine"


def test_an_empty_folder_will_do(typed: Typed, desk):
    (desk / "here").mkdir()
    assert typed("driver", "new", "gpu.example.com", "here").code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", "give it a domain that is yours, for example `gpu.example.com`"),
        ("Gpu.example.com", "write it in lower case"),
        ("gpu_x.example.com", "`gpu_x.example.com` is no name for a driver: a lowercase RFC 1123 subdomain "),
        ("", "an alphanumeric character; for example `gpu.example.com`\n"),
        ("../gpu.example.com", "is no name for a driver"),
        ("gpu." + "x" * 63 + ".com", "is no name for a driver"),
    ],
)
def test_an_invalid_name_is_refused(typed: Typed, desk, name, said):
    made = typed("driver", "new", name)
    assert (made.code, made.out) == (2, "")
    assert said in made.err
    assert not list(desk.iterdir())


NAMES = (
    "gpu.example.com",
    "3d-card.example.com",
    "fast-nic.example.com",
    "ready.example.com",
    "settings.x.io",
)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_sound_files(name):
    names = build_project_names(name)
    files = render_project(names)
    imported = {
        each.name
        for node in ast.walk(ast.parse(files[f"{names.module}.py"] + files[f"test_{names.module}.py"]))
        if isinstance(node, ast.ImportFrom) and node.module != names.module
        for each in node.names
    }
    assert names.class_name not in {*imported, "Settings"}
    for path, text in files.items():
        assert "$" not in path
        if path.endswith(".py"):
            compile(ast.parse(text), path, "exec")
        if path.endswith(".yaml"):
            kinds = [each["kind"] for each in yaml.safe_load_all(text)]
            assert kinds == ["DeviceClass", "ResourceClaimTemplate", "Pod"]


# --- restarting what is examined ---


def test_a_command_that_restarts_is_run_by_a_shell(desk):
    asyncio.run(driver_conformance._run_shell("echo here > ran"))
    assert (desk / "ran").read_text() == "here\n"


def test_a_restart_that_fails_is_reported():
    with pytest.raises(InputError, match=r"--restart: `exit 3` ended with exit code 3"):
        asyncio.run(driver_conformance._run_shell("exit 3"))


def test_a_restart_that_does_not_return_is_killed_and_reported(monkeypatch):
    monkeypatch.setattr(driver_conformance, "_RESTART_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(InputError, match="it should return when the driver is started"):
        asyncio.run(driver_conformance._run_shell("sleep 60; echo never"))


def test_a_driver_in_the_same_process_is_not_killed():
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "d.sock"))
        listening.listen()
        with pytest.raises(InputError, match="cannot be identified from here; use --restart"):
            driver_conformance._kill_listener(folder / "d.sock")


def test_the_process_that_serves_a_socket_is_killed():
    with short_folder() as folder:
        path = folder / "d.sock"
        process = subprocess.Popen([sys.executable, "-c", LISTENS, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        driver_conformance._kill_listener(path)
        assert process.wait(SOON) == -signal.SIGKILL
        process.stdout.close()
