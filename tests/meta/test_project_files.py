"""The files around the code agree with the tree: hooks, code owners, templates, the development container."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.outside import ROOT

OWNERS = ROOT / ".github" / "CODEOWNERS"
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read_makefile() -> str:
    """The Makefile with the variables that name programs replaced."""
    text = (ROOT / "Makefile").read_text("utf-8")
    for name, value in [("$(PY)", "$(BIN)/python"), ("$(BIN)", "$(VENV)/bin"), ("$(VENV)", ".venv")]:
        text = text.replace(name, value)
    return text


def read_recipe(target: str) -> list[str]:
    """The commands of a target."""
    found = re.search(
        rf"^{re.escape(target)}:[^\n]*\n(?P<recipe>(?:\t[^\n]*\n)+)", read_makefile(), re.MULTILINE
    )
    assert found, f"no target `{target}`"
    return [line.strip().removeprefix("@") for line in found["recipe"].splitlines()]


def list_owned_paths() -> list[str]:
    """Paths of the code owners, without the leading slash."""
    lines = (line.split() for line in OWNERS.read_text("utf-8").splitlines() if line and line[0] != "#")
    return [words[0].lstrip("/") for words in lines]


def test_the_hooks_before_a_commit_are_those_of_make_lint():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == read_recipe("lint")
    assert all(hook["always_run"] and not hook["pass_filenames"] for hook in repository["hooks"])


@pytest.mark.parametrize("pattern", [p for p in list_owned_paths() if p != "*"])
def test_a_path_with_owners_exists(pattern):
    assert list(ROOT.glob(pattern.rstrip("/")))


def test_every_package_has_owners():
    owned = {
        path.name
        for pattern in list_owned_paths()
        if pattern != "*"
        for path in ROOT.glob(pattern.rstrip("/"))
    }
    packages = {path.parent.name for path in (ROOT / "src" / "dray").glob("*/__init__.py")}
    assert packages
    assert packages - owned == set()


def test_every_owner_is_a_team():
    for line in OWNERS.read_text("utf-8").splitlines():
        if line and line[0] != "#":
            assert re.fullmatch(r"\S+( +@[\w-]+/[\w-]+)+", line), line


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_for_issues_is_complete(path):
    template = yaml.safe_load(path.read_text("utf-8"))
    if path.name == "config.yml":
        assert "blank_issues_enabled" in template
        return
    assert {"name", "description", "body"} <= template.keys()
    ids = [part["id"] for part in template["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))


def test_the_template_for_changes_names_targets_that_exist():
    text = (ROOT / ".github" / "pull_request_template.md").read_text("utf-8")
    targets = re.findall(r"`make ([a-z.]+)`", text)
    assert targets
    assert all(re.search(rf"^{target}:", read_makefile(), re.MULTILINE) for target in targets)


def test_the_development_container_prepares_what_the_demo_needs():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert container["image"].startswith("python:3.")
    assert container["postCreateCommand"] == "make .venv"
    assert ".venv/bin" in container["remoteEnv"]["PATH"]


def test_the_source_archive_has_what_a_contributor_runs():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    included = re.search(r"sdist\]\ninclude = \[(?P<names>.*?)\]", project, re.DOTALL)
    assert included
    names = re.findall(r'"/([^"]+)"', included["names"])
    assert {"Makefile", "requirements", "tests", "tools", "mkdocs.yml", "SECURITY.md"} <= set(names)
    assert [name for name in names if not (ROOT / name).exists()] == []
