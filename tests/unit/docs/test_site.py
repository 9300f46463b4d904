"""The documentation site: navigation, links to files outside of `docs`, the diagram, the version matrix."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dray.api.kinds import KINDS
from dray.gates import GATES
from tests.outside import ROOT
from tools import architecture, package_tables, site_hooks

DOCS = ROOT / "docs"


def _iter_pages(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from _iter_pages(value)


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    return loaded


def test_every_page_is_in_the_navigation_once(config):
    pages = [page for page in _iter_pages(config["nav"]) if not page.startswith(f"{site_hooks.PREFIX}/")]
    assert sorted(pages) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_files_of_the_repository_in_the_navigation_get_a_page(config):
    named = {page for page in _iter_pages(config["nav"]) if page.startswith(f"{site_hooks.PREFIX}/")}
    assert named
    assert named <= {site_hooks.to_source_uri(path) for path in site_hooks.find_linked_files()}


def test_the_site_is_strict_and_loads_nothing_from_elsewhere(config):
    assert config["strict"] is True
    assert config["theme"]["font"] is False
    assert {level for rules in config["validation"].values() for level in rules.values()} == {"warn"}
    assert "://" not in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_the_build_counts_warnings():
    """With `--quiet` mkdocs counts none, and strict mode passes whatever is broken."""
    (command,) = re.findall(r"mkdocs build.*", (ROOT / "Makefile").read_text("utf-8"))
    assert "--strict" in command
    assert "-q" not in command


def test_no_page_has_a_diagram_that_browsers_would_load_a_program_for():
    assert [path.name for path in DOCS.rglob("*.md") if "```mermaid" in path.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("../README.md", "docs/index.md", "repository/README.md"),
        ("../../examples/README.md", "docs/guides/up.md", "../repository/examples/README.md"),
        ("../../examples/drivers", "docs/guides/up.md", "../repository/examples/drivers/README.md"),
        ("../../examples/demo.sh", "docs/guides/up.md", "../repository/examples/demo.sh.md"),
        ("docs/index.md", "README.md", "../index.md"),
        ("docs/index.md#x", "README.md", "../index.md#x"),
        ("CONTRIBUTING.md", "README.md", "CONTRIBUTING.md"),
        ("up.md", "docs/guides/nodes.md", "up.md"),
        ("../nowhere.md", "docs/index.md", "../nowhere.md"),
        ("https://example.com/a.md", "docs/index.md", "https://example.com/a.md"),
        ("#anchor", "docs/index.md", "#anchor"),
    ],
)
def test_a_link_leads_to_the_page_of_the_site(link, page, expected):
    assert site_hooks.rewrite_links(f"see [it]({link}).", page) == f"see [it]({expected})."


def test_links_in_code_blocks_stay():
    block = "```text\n[a](../README.md)\n```\n"
    assert site_hooks.rewrite_links(block, "docs/index.md") == block


def test_a_file_becomes_a_page_with_its_text():
    page = site_hooks.render_page("examples/demo.sh")
    assert page.startswith("# examples/demo.sh\n")
    assert (ROOT / "examples" / "demo.sh").read_text("utf-8") in page


def test_the_diagram_is_what_its_source_says():
    drawn = architecture.render(tomllib.loads(architecture.SOURCE.read_text("utf-8")))
    assert architecture.TARGET.read_text("utf-8") == drawn, "run `make reference`"


def test_the_table_of_packages_is_what_the_docstrings_say():
    assert package_tables.TARGET.read_text("utf-8") == package_tables.render(), "run `make reference`"


def test_the_table_of_packages_has_every_module():
    page = package_tables.render()
    modules = [path for path in package_tables.SOURCE.rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) > 500
    assert page.count("\n| `") == len(modules)


def test_the_diagram_has_no_box_outside_of_the_picture():
    source = tomllib.loads(architecture.SOURCE.read_text("utf-8"))
    for row in source["box"]:
        assert row["x"] + row["width"] <= source["columns"], row["id"]
        assert row["y"] + row["height"] <= source["rows"], row["id"]


class TestDifferencesFromKubernetes:
    PAGE = (DOCS / "differences.md").read_text("utf-8")

    @pytest.mark.parametrize("gate", GATES)
    def test_every_gate_has_a_row(self, gate):
        assert re.search(rf"^\| `{gate}` \|", self.PAGE, re.MULTILINE)

    @pytest.mark.parametrize(
        "kind", [kind.name for kind in KINDS if kind.group in ("resource.k8s.io", "cdi.k8s.io", "dray.dev")]
    )
    def test_every_kind_of_devices_is_named(self, kind):
        assert f"`{kind}`" in self.PAGE


def test_the_pages_of_python_packages_name_packages_that_exist():
    for path in sorted((DOCS / "python").glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", path.read_text("utf-8"), re.MULTILINE):
            place = ROOT / "src" / name.replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_words_of_the_glossary_are_in_order_and_defined_once():
    words = re.findall(r"^\| ([a-z ]+) \| ", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words.remove("word")
    assert words == sorted(set(words))


def test_the_names_in_the_table_of_renamed_names_exist():
    page = (ROOT / "docs" / "renamed-names.md").read_text("utf-8")
    names = re.findall(r"\| `([\w.]+)` \|$", page, re.MULTILINE)
    assert len(names) > 800
    for name in names:
        module, _, attribute = name.rpartition(".")
        path = ROOT / "src" / "dray" / module.replace(".", "/")
        source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        assert re.search(
            rf"^(?:class|(?:async )?def) {attribute}\b", source.read_text("utf-8"), re.MULTILINE
        ), name
