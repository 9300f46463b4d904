"""The glossary defines every coined word that the style guide allows, once and in one line."""

from __future__ import annotations

import re

from tests.outside import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
STYLE = (ROOT / "STYLE.md").read_text("utf-8")

_COINED = re.compile(r"words that are ours[^(]*\((?P<words>[^)]+)\)")
_ROW = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)


def list_coined_words(style: str) -> list[str]:
    """The words in italics in the sentence of the style guide about words of our own."""
    found = _COINED.search(style)
    return re.findall(r"\*(\w+)\*", found["words"]) if found else []


def list_defined_words(glossary: str) -> list[str]:
    """The first column of the table, without its header."""
    return [row["word"] for row in _ROW.finditer(glossary)][2:]


def find_undefined_words(style: str, glossary: str) -> list[str]:
    """Coined words that no row defines; `shape of a node` defines `shape`."""
    defined = {word.split()[0] for word in list_defined_words(glossary)}
    return [word for word in list_coined_words(style) if word not in defined]


def test_the_style_guide_lists_coined_words():
    assert {"ledger", "quarantine", "fence"} <= set(list_coined_words(STYLE))


def test_every_coined_word_is_defined():
    assert find_undefined_words(STYLE, GLOSSARY) == []


def test_words_are_defined_once_and_in_alphabetical_order():
    words = list_defined_words(GLOSSARY)
    assert words == sorted(set(words))


def test_every_line_of_the_table_is_a_row():
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("|")]
    assert len(lines) == len(list_defined_words(GLOSSARY)) + 2


def test_an_undefined_word_is_found():
    style = "The few words that are ours name promises\nof the product (*ledger*, *fence*); see the glossary."
    glossary = "| word | meaning |\n| --- | --- |\n| ledger | a record |\n"
    assert find_undefined_words(style, glossary) == ["fence"]
