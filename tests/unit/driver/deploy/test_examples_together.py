"""The example drivers on one cluster: no two of their objects have one name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from dray.driver import Driver
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import DeploymentTarget
from tests.outside import ROOT

EXAMPLES = ROOT / "examples" / "drivers"
PROGRAMS = sorted(f"{each.parent.name}.{each.stem}" for each in EXAMPLES.glob("*/*.py"))


def find_driver(program: str) -> type[Driver]:
    module = import_module(f"dray_examples.{program}")
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Driver) and each.__module__ == module.__name__
    )
    return found


def list_documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """All documents that the pages of the examples apply, each with its origin."""
    for program in PROGRAMS:
        for document in build_manifests(find_driver(program)(), DeploymentTarget("registry.example.com/i:1")):
            yield program, document
    for file in sorted(EXAMPLES.glob("*/*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield str(Path(file).relative_to(EXAMPLES)), document


def test_no_two_objects_of_the_examples_have_one_name() -> None:
    origins: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for origin, document in list_documents():
        group = document["apiVersion"].rpartition("/")[0]
        metadata = document["metadata"]
        identity = (group, document["kind"], metadata.get("namespace", ""), metadata["name"])
        origins[identity].append(origin)
    assert len(origins) > 80
    assert {identity: found for identity, found in origins.items() if len(found) > 1} == {}


def test_no_two_drivers_have_one_name() -> None:
    names = [find_driver(program).name for program in PROGRAMS]
    assert len(names) == len(set(names)) == 7
