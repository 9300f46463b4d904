"""The systemd units: systemd accepts them, dray accepts their arguments, and services are confined."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.rendering import DEPLOY, find_program, parse_arguments
from tests.outside import ROOT

SYSTEMD = DEPLOY / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
CONFINED = [path for path in UNITS if path.stem != "dray-node"]
PROGRAM = "/usr/local/lib/dray/bin/dray"
MAX_EXPOSURE = 2.0
"""The level of `systemd-analyze security`: 0 is confined, 10 is not."""


def read_settings(path: Path) -> dict[str, list[str]]:
    """The settings of all sections; a key may come several times."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            key, equals, value = line.partition("=")
            assert equals, line
            settings.setdefault(key, []).append(value)
    return settings


def read_command(path: Path) -> list[str]:
    (command,) = read_settings(path)["ExecStart"]
    return shlex.split(command)


def test_every_service_has_a_unit():
    names = {path.stem for path in UNITS}
    assert names == {f"dray-{name}" for name in ("server", "scheduler", "controller", "guard", "node")}
    listed = set(re.findall(r"\((dray-\w+)\.service\)", (SYSTEMD / "README.md").read_text("utf-8")))
    assert listed == names


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_dray_accepts_the_arguments(path: Path):
    program, *arguments = read_command(path)
    assert program == PROGRAM
    assert arguments[0] == path.stem.removeprefix("dray-")
    assert arguments.pop() == "$DRAY_ARGS", "options of the environment file come last, and override"
    filled = [word.replace("%d", "/run/credentials").replace("%S", "/var/lib") for word in arguments]
    assert not [word for word in filled if "%" in word or "$" in word]
    parse_arguments(filled)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_options_come_from_the_environment_file_of_the_service(path: Path):
    settings = read_settings(path)
    assert settings["EnvironmentFile"] == [f"-/etc/dray/{path.stem.removeprefix('dray-')}.env"]
    assert settings["Restart"] == ["on-failure"]
    assert settings["StartLimitIntervalSec"] == ["0"], "a server may come much later"


@pytest.mark.parametrize("path", CONFINED, ids=lambda path: path.stem)
def test_services_are_confined(path: Path):
    """What a reader of the unit must find; systemd judges the rest below."""
    settings = read_settings(path)
    for key, value in {
        "DynamicUser": "yes",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "PrivateDevices": "yes",
        "CapabilityBoundingSet": "",
    }.items():
        assert settings[key] == [value], key


def test_containers_survive_the_agent():
    settings = read_settings(SYSTEMD / "dray-node.service")
    assert settings["KillMode"] == ["process"]
    assert "ProtectSystem" not in settings, "containers have the view of the agent"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with a program that exists: systemd asks for it."""
    program = Path(sys.executable).parent / "dray"
    for path in UNITS:
        (tmp_path / path.name).write_text(path.read_text("utf-8").replace(PROGRAM, str(program)))
    return tmp_path


def analyze(*arguments: str) -> str:
    program = find_program("systemd-analyze")
    if program is None:
        pytest.skip("no `systemd-analyze` on PATH; the units are read without it")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_accepts_the_units(installed: Path):
    for path in sorted(installed.iterdir()):
        assert analyze("verify", "--man=no", "--recursive-errors=no", str(path)) == ""


def test_systemd_finds_the_services_confined(installed: Path):
    for path in CONFINED:
        said = analyze("security", "--offline=yes", "--no-pager", str(installed / path.name))
        level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert level is not None, said
        assert float(level[1]) <= MAX_EXPOSURE


def test_the_units_are_in_the_source_archive():
    assert '"/deploy",' in (ROOT / "pyproject.toml").read_text("utf-8")
