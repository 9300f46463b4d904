"""`dray driver new`: names that will do, and nothing that is there is overwritten."""

from __future__ import annotations

import ast

import pytest
import yaml

from dray.driver.skeleton import names_of, project
from tests.unit.cli.conftest import Typed


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
        ("gpu_x.example.com", "`gpu_x.example.com` is no name for a driver"),
        ("../gpu.example.com", "is no name for a driver"),
        ("gpu." + "x" * 63 + ".com", "is no name for a driver"),
    ],
)
def test_a_name_that_will_not_do_is_told(typed: Typed, desk, name, said):
    made = typed("driver", "new", name)
    assert (made.code, made.out) == (2, "")
    assert said in made.err
    assert not list(desk.iterdir())


@pytest.mark.parametrize("name", ["gpu.example.com", "3d-card.example.com", "fast-nic.example.com"])
def test_every_name_makes_sound_files(name):
    files = project(names_of(name))
    for path, text in files.items():
        assert "$" not in path
        if path.endswith(".py"):
            compile(ast.parse(text), path, "exec")
        if path.endswith(".yaml"):
            kinds = [each["kind"] for each in yaml.safe_load_all(text)]
            assert kinds == ["DeviceClass", "ResourceClaimTemplate", "Pod"]
