"""Every character of a text value is found again in the file, however the value was written."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dray.lint.source_positions import locate_character
from dray.manifests import ManifestDocument, ManifestSource, read_documents

WAYS = {
    "plain": "a:\n- expression: device.driver == @x\n",
    "plain with what follows": "a:\n- {expression: device.driver == @x, b: 1}\n",
    "plain over lines": "a:\n- expression: device.driver ==\n    true &&\n\n    @x\n",
    "plain below its key": "a:\n- expression:\n    device.driver == @x\n",
    "below its key and a comment": "a:\n- expression: # why\n    # and more\n    device.driver == @x\n",
    "double": 'a:\n- expression: "device.driver == @x"\n',
    "double with escapes": 'a:\n- expression: "device.driver == \\"y\\" \\u0026\\x26\\n\\t@x"\n',
    "double over lines": 'a:\n- expression: "device.driver ==   \n\n\n    true && \\\n     @x"\n',
    "double with an escaped break": 'a:\n- expression: "device.driver ==\\\n     @x"\n',
    "double below its key": 'a:\n- expression:\n    "device.driver == @x"\n',
    "single": "a:\n- expression: 'device.driver == ''y'' && @x'\n",
    "single over lines": "a:\n- expression: 'device.driver ==  \n    ''y'' && @x'\n",
    "block": "a:\n- expression: |-\n    device.driver ==\n      true &&\n\n    @x\n",
    "block that keeps breaks": "a:\n- expression: |+\n    device.driver == @x\n\n\nb: 1\n",
    "block with a comment": "a:\n- expression: | # why\n    device.driver == @x\n",
    "block with its indentation": "a:\n- expression: |2\n      device.driver ==\n    @x\n",
    "block that starts empty": "a:\n- expression: |\n\n    device.driver == @x\n",
    "folded": "a:\n- expression: >-\n    device.driver ==\n    true &&\n\n\n    @x\n",
    "folded with deeper lines": "a:\n- expression: >\n    device.driver ==\n      true &&\n    1 == @x\n",
    "anchor": "a:\n- expression: &e device.driver == @x\n",
    "tag and anchor": 'a:\n- expression: !!str &e "device.driver == @x"\n',
    "quoted key": 'a:\n- "expression":\n    device.driver == @x\n',
    "json": '{"a": [{"expression": "device.driver == \\"y\\" &&\\n @x"}]}',
}


def document(text: str) -> ManifestDocument:
    (found,) = read_documents(ManifestSource.decode("f.yaml", text.encode()))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_character_is_found(way: str) -> None:
    found = document(WAYS[way])
    value = found.value["a"][0]["expression"]
    for sign in "@", "d", "x":
        line, column = locate_character(found, "a[0].expression", value, value.rindex(sign))
        assert WAYS[way].split("\n")[line - 1][column - 1] == sign


@pytest.mark.parametrize("way", WAYS)
def test_the_end_is_after_the_last_character(way: str) -> None:
    found = document(WAYS[way])
    value = found.value["a"][0]["expression"].rstrip("\n")
    last = locate_character(found, "a[0].expression", value, len(value) - 1)
    assert locate_character(found, "a[0].expression", value, len(value)) == (last.line, last.column + 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("b: &e device.driver == @x\na:\n- expression: *e\n", (3, 3)),
        ('a:\n- expression: "\\N == @x"\n', (2, 15)),
        ("a: []\n", (1, 4)),
    ],
)
def test_an_unreadable_value_is_located_at_its_start(text: str, place: tuple[int, int]) -> None:
    assert locate_character(document(text), "a[0].expression", "device.driver == @x", 17) == place


words = st.text(st.sampled_from("ab '\"\\\n\t:#&*-{}[]|>%@!é"), min_size=1, max_size=30)


@given(words, st.sampled_from(["'", '"', "|", ">", None]), st.integers(10, 40))
def test_characters_are_found_in_any_style_of_writing(text: str, style: str | None, width: int) -> None:
    written = yaml.safe_dump(
        {"a": [{"expression": text}]}, default_style=style, width=width, allow_unicode=True
    )
    found = document(written)
    value = found.value["a"][0]["expression"]
    start = found.locate("a[0].expression")
    lines = written.split("\n")
    for offset, char in enumerate(value):
        line, column = locate_character(found, "a[0].expression", value, offset)
        assert offset == 0 or not value.strip() or (line, column) != start
        if char not in " \n\t\\'\"":
            assert offset == 0 or lines[line - 1][column - 1] == char


@given(words)
def test_characters_are_found_in_json(text: str) -> None:
    written = json.dumps({"expression": text}, ensure_ascii=False)
    found = document(written)
    for offset, char in enumerate(text.rstrip("\n")):
        _, column = locate_character(found, "expression", text, offset)
        assert written[column - 1] in (char, "\\")
