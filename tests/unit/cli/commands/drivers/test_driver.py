"""`dray driver`: valid names, existing files that are kept, and restarts of drivers."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib

import pytest
import yaml

from dray.cli.commands.drivers import driver_conformance
from dray.driver.skeleton import build_project_names, render_project
from dray.errors import InputError
from tests.contract.kitted import short_folder
from tests.deploy.containerfile import read_stages
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
        "Containerfile",
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


@pytest.mark.parametrize("name", NAMES)
def test_the_image_of_a_project_has_a_pinned_base_its_files_and_a_user_without_rights(name, tmp_path):
    names = build_project_names(name)
    files = render_project(names)
    file = tmp_path / "Containerfile"
    file.write_text(files["Containerfile"])
    build, image = read_stages(file)
    for stage in (build, image):
        assert re.fullmatch(r"python:\d+\.\d+\.\d+-[a-z-]+", stage.base), "a full version, not `latest`"
    copied = [word for step in build.find("COPY") for word in step.text.split()[:-1]]
    assert sorted(copied) == sorted({"pyproject.toml", f"{names.module}.py"})
    assert set(copied) <= set(files)
    assert [step.text for step in image.find("COPY")] == [f"--from={build.name} /wheels /wheels"]
    (user,) = image.find("USER")
    assert int(user.text.partition(":")[0]) > 0
    (entry_point,) = image.find("ENTRYPOINT")
    assert entry_point.parse_words() == ["python", "-m", names.module]
    (install,) = image.find("RUN")
    project = tomllib.loads(files["pyproject.toml"])
    assert install.text.endswith(" --no-index /wheels/*.whl"), "only what the build stage has made"
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == [f"{names.module}.py"]


def test_the_wheel_that_the_image_installs_contains_the_program(tmp_path):
    """The step of the build stage, without the wheels of what the driver depends on."""
    names = build_project_names("gpu.example.com")
    for path, text in render_project(names).items():
        (tmp_path / path).write_text(text)
    (build, _) = read_stages(tmp_path / "Containerfile")
    step = build.find("RUN")[0].text.replace("/wheels", str(tmp_path / "wheels"))
    assert step.startswith("python -m pip wheel ")
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, *step.split()[1:], *offline]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=SOON)
    (wheel,) = (tmp_path / "wheels").iterdir()
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    program = [sys.executable, "-m", names.module, "devices"]
    ran = subprocess.run(program, cwd="/", env=environment, capture_output=True, text=True, timeout=SOON)
    assert yaml.safe_load(ran.stdout)["spec"]["driver"] == "gpu.example.com", ran.stderr


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
