"""The bill of materials: licences are read from any metadata, and only those on the list pass."""

from __future__ import annotations

import json
from importlib.metadata import Distribution

import pytest

from tools import materials


class Installed(Distribution):
    """A distribution with the metadata of a test."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        self._text = "".join(f"{name}: {value}\n" for name, value in fields)

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        raise FileNotFoundError(path)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT")], "MIT"),
        ([("License", "Apache 2")], "Apache-2.0"),
        ([("License", "BSD-3-Clause")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        (
            [("License", "see file"), ("Classifier", "License :: OSI Approved :: ISC License (ISCL)")],
            "ISC",
        ),
        ([("License", "Some Shareware Licence\n  with many lines")], "Some Shareware Licence"),
        ([], "unknown"),
    ],
)
def test_the_licence_of_a_distribution_is_found(fields, licence):
    assert materials.find_licence(Installed(*fields)) == licence


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("(MIT OR GPL-2.0-only) ", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_licence_passes_when_it_is_on_the_list(expression, allowed):
    assert materials.is_allowed(expression) is allowed


def test_the_bill_has_every_component_and_only_what_is_installed():
    rows = [
        materials.Component("click", "8.2.0", "BSD-3-Clause", ("colorama",)),
        materials.Component("dray", "1.0.0", "Apache-2.0", ("click",)),
    ]
    bill = materials.make_document(rows)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "dray"
    assert [row["name"] for row in bill["components"]] == ["click"]
    assert bill["dependencies"] == [
        {"ref": rows[0].purl, "dependsOn": []},
        {"ref": rows[1].purl, "dependsOn": [rows[0].purl]},
    ]
    assert materials.make_document(rows) == bill


def test_a_licence_that_is_not_on_the_list_fails(tmp_path, monkeypatch, capsys):
    rows = [
        materials.Component("dray", "1.0.0", "Apache-2.0", ()),
        materials.Component("nasty", "2.0", "GPL-3.0-only", ()),
    ]
    monkeypatch.setattr(materials, "find_components", lambda: rows)
    files = [tmp_path / "bill.json", tmp_path / "licences.txt"]
    assert materials.main([str(path) for path in files]) == 1
    assert "nasty 2.0: licence `GPL-3.0-only` is not on the list" in capsys.readouterr().out
    assert files[1].read_text() == "dray 1.0.0: Apache-2.0\nnasty 2.0: GPL-3.0-only\n"
    assert json.loads(files[0].read_text())["components"][0]["licenses"] == [
        {"license": {"name": "GPL-3.0-only"}}
    ]


def test_this_installation_has_components():
    names = {row.name for row in materials.find_components()}
    assert {"click", "msgspec"} <= names
    assert not names & materials.NOT_SHIPPED
