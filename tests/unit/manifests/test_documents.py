"""Documents of manifests: YAML, JSON, lists, and everything that is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from dray.api.decode_report import MAX_DEPTH
from dray.manifests import ManifestDocument, ManifestReadError, ManifestSource, expand_items, read_documents
from dray.manifests.yaml_reader import MAX_ALIASED, has_comments


def documents(text: str, name: str = "f.yaml") -> list[ManifestDocument]:
    return list(read_documents(ManifestSource(name, text)))


def values(text: str, name: str = "f.yaml") -> list[Any]:
    return [document.value for document in documents(text, name)]


def refusal(text: str, name: str = "f.yaml") -> ManifestReadError:
    with pytest.raises(ManifestReadError) as caught:
        documents(text, name)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# only a comment\n", []),
        ("---\n---\n", []),
        ("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        ("a: 'on'\nb: on\n", [{"a": "on", "b": True}]),
        ("a: !!str 3\nb: !!int '3'\nc: !!float 3\nd: ! 3\n", [{"a": "3", "b": 3, "c": 3, "d": "3"}]),
        ("1: a\ntrue: b\n1.5: c\n", [{"1": "a", "true": "b", "1.5": "c"}]),
        ("a: &x [1, {b: 2}]\nc: *x\n", [{"a": [1, {"b": 2}], "c": [1, {"b": 2}]}]),
        ("a: &a {x: 1, z: 2}\nb: {<<: *a, x: 3}\n", [{"a": {"x": 1, "z": 2}, "b": {"x": 3, "z": 2}}]),
        (
            "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n",
            [{"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x": 1, "z": 3}}],
        ),
        ("a: <<\n", [{"a": "<<"}]),
        ("'<<': 1\n", [{"<<": 1}]),
        ("- 1\n- a\n", [[1, "a"]]),
        ("plain words\n", ["plain words"]),
        ("{a: 1, b: [x]}\n", [{"a": 1, "b": ["x"]}]),
    ],
)
def test_yaml(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1.50, "b": 2.0}', [{"a": Decimal("1.50"), "b": 2}]),
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('\n {"a": "\\ud83d\\ude00\\/"}', [{"a": "😀/"}]),
        ('[{"a": 1}]', [[{"a": 1}]]),
    ],
)
def test_json(text: str, expected: list[Any]) -> None:
    assert values(text, "f.json") == expected


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: b: c", (1, 5), "`: ` is not allowed here"),
        ("a:\n\tb: 1", (2, 1), "a tab cannot indent"),
        ("a: [1,2\n", (1, 8), "expected ',' or ']'"),
        ("a: 'x", (1, 6), "ends inside a quoted string"),
        ("ü: 'ä'\na: @x", (2, 4), "quote the text"),
        ("a: *b", (1, 4), "names no anchor"),
        ("&a [*a]", (1, 5), "would never end"),
        ("a: &a {b: {c: *a}}", (1, 15), "would never end"),
        ("x: !!python/object/apply:os.system ['true']", (1, 4), "`!!python/object/apply:os.system`"),
        ("x: !mine 3", (1, 4), "tag `!mine`"),
        ("x: !!binary aGk=", (1, 4), "tag `!!binary`"),
        ("x: !!set {a, b}", (1, 4), "tag `!!set`"),
        ("x: !!int abc", (1, 4), "`abc` is not a value of tag `!!int`"),
        ("x: .inf", (1, 4), "no number that JSON can hold"),
        ("x: -.INF", (1, 4), "no number that JSON can hold"),
        ("x: .nan", (1, 4), "no number that JSON can hold"),
        ("? [1]\n: 2", (1, 3), "a key must be text"),
        ("~: 1", (1, 1), "a key must be text, not null"),
        ("a: \x9f", (1, 4), "the character U+009F may not be in YAML"),
        ("<<: 3", (1, 5), "`<<` merges maps"),
        ("a: 1\n---\nb: [\n", (3, 5), ""),
    ],
)
def test_yaml_that_is_refused(text: str, place: tuple[int, int], words: str) -> None:
    broken = refusal(text)
    assert broken.position == place, str(broken)
    assert words in broken.problem
    assert broken.line == text.splitlines()[place[0] - 1]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a": 1,}', (1, 9), "not JSON"),
        ('{"a": 1}\n{"b"}', (2, 5), "not JSON"),
        ('{"a": ["x",\n "\\ud800"]}', (2, 3), "`\\ud800` alone is half a character"),
        ('{"\\udc00": 1}', (1, 3), "half a character"),
        ('{"a": NaN}', (1, 1), "`NaN` is no number"),
        ('{"a": 1e999}', (1, 1), "too large"),
        ('{"a": ' + "9" * 5000 + "}", (1, 1), "not JSON"),
        ("[" * 5000 + "]" * 5000, (1, 1), "levels deep"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), (1, 1), "levels deep"),
    ],
)
def test_json_that_is_refused(text: str, place: tuple[int, int], words: str) -> None:
    broken = refusal(text, "f.json")
    assert (broken.position, broken.source) == (place, "f.json")
    assert words in broken.problem


def test_valid_documents_before_an_error_are_read() -> None:
    reading = read_documents(ManifestSource("f", "a: 1\n---\nb: [\n"))
    assert next(reading).value == {"a": 1}
    with pytest.raises(ManifestReadError):
        next(reading)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_limited_before_the_interpreter_fails(opening: str) -> None:
    assert f"more than {MAX_DEPTH} levels" in refusal(opening * 100_000).problem


def test_nesting_up_to_the_limit_is_read() -> None:
    assert len(values("[" * MAX_DEPTH + "]" * MAX_DEPTH)) == 1


def test_aliases_may_not_multiply_beyond_a_limit() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert f"more than {MAX_ALIASED:,} values" in refusal("\n".join(lines)).problem


def test_aliases_count_for_nesting() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, MAX_DEPTH + 1)]
    assert "levels deep" in refusal("\n".join(lines)).problem


def test_a_duplicate_key_is_reported_with_both_positions() -> None:
    (document,) = documents("metadata:\n  labels:\n    a.io/x: 1\n    a.io/x: 2\n")
    assert document.value == {"metadata": {"labels": {"a.io/x": 2}}}
    (twice,) = document.duplicates
    assert (twice.path, twice.key, twice.first, twice.second) == (
        "metadata.labels[a.io/x]",
        "a.io/x",
        (3, 5),
        (4, 5),
    )


def test_a_duplicate_key_in_json_is_reported_with_both_positions() -> None:
    (document,) = documents('{"a": [\n {"b": 1, "c": 2,\n  "b": 3}]}', "f.json")
    (twice,) = document.duplicates
    assert (twice.path, twice.first, twice.second) == ("a[0].b", (2, 3), (3, 3))


def test_a_merged_key_is_not_given_twice() -> None:
    assert documents("a: &a {x: 1}\nb:\n  x: 2\n  <<: *a\n")[0].duplicates == ()


def test_a_list_is_its_items() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: List\n  items:\n  - kind: B\n- 3\n"
    items = [item for document in documents(text) for item in expand_items(document)]
    assert [(item.prefix, item.value) for item in items] == [
        ("items[0]", {"kind": "A"}),
        ("items[1].items[0]", {"kind": "B"}),
        ("items[2]", 3),
    ]


def test_items_of_a_typed_list_are_of_its_kind() -> None:
    text = json.dumps({"apiVersion": "g/v1", "kind": "ThingList", "items": [{"metadata": {"name": "x"}}]})
    (item,) = expand_items(documents(text)[0])
    assert (item.value["apiVersion"], item.value["kind"]) == ("g/v1", "Thing")


def test_an_object_that_only_looks_like_a_list_is_itself() -> None:
    (document,) = documents("kind: AllowList\nitems: none\n")
    assert list(expand_items(document)) == [document]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b", False),
        ("a: b # c", True),
        ("# x\na: b", True),
        ("a: 'b # c'", False),
        ("a: b#c", False),
        ("a: |\n  # text\nb: 1\n", False),
        ("a: |\n  x\n# comment\nb: 1\n", True),
        ('é: "é # é"\n', False),
        ('{"a": "\\ud83d\\ude00 # "}', False),
    ],
)
def test_comments_are_detected(text: str, expected: bool) -> None:
    assert has_comments(ManifestSource("f", text)) is expected
