"""Positions of field paths."""

from __future__ import annotations

import json

import pytest

from dray.manifests import ManifestDocument, ManifestSource, expand_items, read_documents

SLICE = """\
kind: ResourceSlice
metadata: {name: s}
spec:
  pool:
  devices:
  - name: gpu-0
    attributes:
      example.com/model:
        string: A100
      a[b].c: {int: 3}
  -
    name: gpu-1
  x.y: 1
"""


def only(text: str, name: str = "f.yaml") -> ManifestDocument:
    (document,) = read_documents(ManifestSource(name, text))
    return document


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("", (1, 1), (1, 1)),
        ("kind", (1, 7), (1, 1)),
        ("metadata", (2, 11), (2, 1)),
        ("metadata.name", (2, 18), (2, 12)),
        ("spec", (3, 1), (3, 1)),
        ("spec.pool", (4, 3), (4, 3)),
        ("spec.devices", (5, 3), (5, 3)),
        ("spec.devices[0]", (6, 5), (6, 5)),
        ("spec.devices[0].name", (6, 11), (6, 5)),
        ("spec.devices[0].attributes[example.com/model]", (8, 7), (8, 7)),
        ("spec.devices[0].attributes[example.com/model].string", (9, 17), (9, 9)),
        ("spec.devices[0].attributes[a[b].c].int", (10, 21), (10, 16)),
        ("spec.devices[1].name", (12, 11), (12, 5)),
        ("spec.x.y", (13, 8), (13, 3)),
        ("spec.nodeName", (3, 1), (3, 1)),
        ("spec.pool.name", (4, 3), (4, 3)),
        ("spec.devices[7].name", (5, 3), (5, 3)),
        ("spec.devices[x]", (5, 3), (5, 3)),
        ("spec.devices[0].attributes[no.example/x].string", (7, 5), (7, 5)),
        ("kindness", (1, 1), (1, 1)),
    ],
)
def test_a_field_is_found_or_its_nearest_parent(path: str, value: object, key: object) -> None:
    document = only(SLICE)
    assert document.locate(path) == value
    assert document.locate(path, key=True) == key


def test_positions_in_json_are_those_of_the_text() -> None:
    text = '{ "a": {"b c": [1,\n  "x",\t{"d": null}]},\n "e": "\\ud83d\\ude00"}'
    document = only(text, "f.json")
    assert document.locate("a") == (1, 8)
    assert document.locate("a", key=True) == (1, 3)
    assert document.locate("a[b c][1]") == (2, 3)
    assert document.locate("a[b c][2].d") == (2, 9)
    assert document.locate("e") == (3, 7)


def test_positions_of_json_and_yaml_agree() -> None:
    text = json.dumps(
        {"spec": {"devices": [{"name": "a", "n": 1.5}, {"b": [], "c": {}, "d": True}]}}, indent=2
    )
    as_json, as_yaml = only(text, "f.json"), only("# yaml\n" + text, "f.yaml")
    for path in ("spec", "spec.devices[0].n", "spec.devices[1].b", "spec.devices[1].c", "spec.devices[1].d"):
        line, column = as_json.locate(path)
        assert as_yaml.locate(path) == (line + 1, column)


def test_items_of_a_list_are_found_in_the_list() -> None:
    (item,) = expand_items(only("kind: List\nitems:\n- kind: A\n  spec: {x: 1}\n"))
    assert item.locate("spec.x") == (4, 13)
    assert item.locate("") == (3, 3)


def test_a_field_behind_an_alias_is_found_at_its_key() -> None:
    document = only("a: &a\n  x: 1\nb: *a\n")
    assert document.locate("b") == (3, 1)
    assert document.locate("b.x") == (2, 6)
