"""The lists of dependencies agree with each other, are pinned, and each dependency is argued for."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.outside import ROOT

FOLDER = ROOT / "requirements"


def declared(name: str) -> list[str]:
    """What a `.in` file asks for itself, without comments and references to other files."""
    lines = (FOLDER / f"{name}.in").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def pinned(name: str) -> dict[str, str]:
    """Distribution to version, as a `.txt` file pins them."""
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def distribution(requirement: str) -> str:
    return re.split(r"[<>=!~; \[]", requirement)[0].lower().replace("_", "-")


def test_run_is_what_the_project_declares():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert declared("run") == project["dependencies"]


@pytest.mark.parametrize("name", ["run", "dev", "build", "bench", "oracle", "docs"])
def test_everything_declared_is_pinned(name):
    assert {distribution(line) for line in declared(name)} <= pinned(name).keys()


@pytest.mark.parametrize("name", ["run", "dev", "build", "bench", "oracle", "docs"])
def test_every_pin_has_hashes(name):
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    pins = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(pins) == len(pinned(name))
    assert all("--hash=sha256:" in pin for pin in pins)


@pytest.mark.parametrize("name", ["run", "build", "bench", "docs"])
def test_the_files_pin_the_same_versions(name):
    development = pinned("dev")
    shared = {key: version for key, version in pinned(name).items() if key in development}
    assert shared
    assert shared == {key: development[key] for key in shared}


@pytest.mark.parametrize("name", ["run", "dev", "build", "bench", "oracle", "docs"])
def test_every_dependency_is_argued_for(name):
    note = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text("utf-8")
    argued = {name.lower() for name in re.findall(r"^\| `([\w-]+)`", note, flags=re.MULTILINE)}
    assert not {distribution(line) for line in declared(name)} - argued
