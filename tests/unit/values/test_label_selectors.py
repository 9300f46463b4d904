"""Label selectors: both notations, what they select, how they print, and where a text is invalid."""

from __future__ import annotations

import dataclasses

import pytest

from dray.values.label_selectors import (
    EVERYTHING,
    LabelRequirement,
    LabelSelectorError,
    ParsedLabelSelector,
    SelectorOperator,
    matches_operator,
    parse_int64,
)

# text, canonical text
TEXTS = [
    ("", ""),
    ("  \t\r\n", ""),
    ("a", "a"),
    ("!a", "!a"),
    ("! a", "!a"),
    ("a=b", "a=b"),
    ("a==b", "a=b"),
    ("a in (b)", "a=b"),
    ("a!=b", "a!=b"),
    ("a notin (b)", "a!=b"),
    ("a=", "a="),
    ("a= ,b", "a=,b"),
    ("a!=", "a!="),
    ("a in ()", "a="),
    ("a in (,)", "a="),
    ("a in (c,,b)", "a in (,b,c)"),
    ("a in (b,)", "a in (,b)"),
    ("a in (c,b,c)", "a in (b,c)"),
    ("a notin (c , b)", "a notin (b,c)"),
    ("a in(b)", "a=b"),
    ("a>5", "a>5"),
    ("a < 7", "a<7"),
    ("z=1,a=1", "a=1,z=1"),
    ("a=1,a=1,a==1", "a=1"),
    ("a=1,a=2", "a=1,a=2"),
    ("in in (in,notin)", "in in (in,notin)"),
    ("notin", "notin"),
    ("!in,notin notin (in)", "!in,notin!=in"),
    ("x.io/a=b,c!=d,e in (f,g),!h,i", "c!=d,e in (f,g),!h,i,x.io/a=b"),
]


@pytest.mark.parametrize(("text", "canonical"), TEXTS)
def test_a_text_has_one_canonical_text(text, canonical):
    selector = ParsedLabelSelector.parse(text)
    assert str(selector) == canonical
    assert ParsedLabelSelector.parse(canonical) == selector


# text, position, what the reason must say
REFUSALS = [
    (",", 0, "found `,`, expected a label key"),
    ("=b", 0, "found `=`, expected a label key"),
    ("(a)", 0, "found `(`, expected a label key"),
    ("a,", 2, "found the end, expected a label key"),
    ("a,,b", 2, "found `,`, expected a label key"),
    ("!", 1, "found the end, expected a label key"),
    ("!!a", 1, "found `!`, expected a label key"),
    ("!a=b", 2, "found `=`, expected `,` or the end"),
    ("!a in (b)", 3, "found `in`, expected `,` or the end"),
    ("a b", 2, "found `b`, expected `=`, `!=`, `in`, `notin`, `>`, `<`, `,` or the end"),
    ("a(b)", 1, "found `(`, expected `=`"),
    ("a=b c", 4, "found `c`, expected `,` or the end"),
    ("a=b=c", 3, "found `=`, expected `,` or the end"),
    ("a=(b)", 2, "found `(`, expected a value"),
    ("a=!b", 2, "found `!`, expected a value"),
    ("a=b)", 3, "found `)`, expected `,` or the end"),
    ("a in", 4, "found the end, expected `(`"),
    ("a in b", 5, "found `b`, expected `(`"),
    ("a in (b", 7, "found the end, expected `,` or `)`"),
    ("a in (b c)", 8, "found `c`, expected `,` or `)`"),
    ("a in (b,(c))", 8, "found `(`, expected a value"),
    ("a in (b))", 8, "found `)`, expected `,` or the end"),
    ("a>x", 2, "found `x`, expected a whole number, which `Gt` compares with"),
    ("a<", 2, "found the end, expected a whole number"),
    ("a>9223372036854775808", 2, "expected a whole number"),
    ("a/b/c=d", 0, "key `a/b/c`: a valid label key"),
    ("ok,é", 3, "key `é`: name part must consist of"),
    ("a\x00", 0, r"key `a\x00`: name part"),
    ("a=-b", 2, "value `-b`: a valid label must be"),
    ("a in (x,/)", 8, "value `/`: a valid label must be"),
    ("a=" + "x" * 64, 2, "must be no more than 63 bytes"),
]


@pytest.mark.parametrize(("text", "position", "reason"), REFUSALS)
def test_a_refusal_says_where_and_why(text, position, reason):
    with pytest.raises(LabelSelectorError) as refusal:
        ParsedLabelSelector.parse(text)
    assert refusal.value.position == position
    assert reason in refusal.value.reason
    assert str(refusal.value) == f"label selector, column {position + 1}: {refusal.value.reason}"
    assert str(refusal.value).isprintable()


LABELS = {"app": "web", "tier": "a", "n": "7", "empty": ""}

MATCHES = [
    ("", True),
    ("app", True),
    ("!app", False),
    ("other", False),
    ("!other", True),
    ("app=web", True),
    ("app=db", False),
    ("other=web", False),
    ("app!=db", True),
    ("app!=web", False),
    ("other!=web", True),
    ("tier in (a,b)", True),
    ("tier in (b,c)", False),
    ("tier notin (b,c)", True),
    ("tier notin (a)", False),
    ("other notin (a)", True),
    ("empty=", True),
    ("other=", False),
    ("empty", True),
    ("n>6", True),
    ("n>7", False),
    ("n<8", True),
    ("n<7", False),
    ("app>1", False),
    ("other<1", False),
    ("app=web,tier=a", True),
    ("app=web,tier=b", False),
]


@pytest.mark.parametrize(("text", "selected"), MATCHES)
def test_what_a_selector_selects(text, selected):
    assert ParsedLabelSelector.parse(text).matches(LABELS) is selected


def test_both_notations_become_the_same_selector():
    document = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "NotIn", "values": ["z"]},
            {"key": "new", "operator": "Exists", "values": []},
            {"key": "any", "operator": "Exists", "values": None},
        ],
    }
    selector = ParsedLabelSelector.from_document(document)
    assert selector == ParsedLabelSelector.parse("app=web,tier in (a,b),!old,zone!=z,new,any")
    assert ParsedLabelSelector.from_document({}) == EVERYTHING == ParsedLabelSelector.parse("")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "Expected `object`, got `array`"),
        ({"matchLables": {}}, "unknown field `matchLables`"),
        ({"matchLabels": {"a": 1}}, "Expected `str`, got `int`"),
        ({"matchLabels": {"a/b/c": "x"}}, "key `a/b/c`: a valid label key"),
        ({"matchLabels": {"a": "-"}}, "value `-` of key `a`: a valid label must be"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "key ``: name part must be non-empty"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            "operator `Gt` of key `a` is unknown; expected In, NotIn, Exists or DoesNotExist",
        ),
        ({"matchExpressions": [{"key": "a"}]}, "operator `` of key `a` is unknown"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "operator `In` of key `a` needs at least one",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "operator `Exists` of key `a` takes no values",
        ),
    ],
)
def test_an_invalid_document_is_refused_with_a_reason(document, reason):
    with pytest.raises(LabelSelectorError) as refusal:
        ParsedLabelSelector.from_document(document)
    assert reason in str(refusal.value)
    assert refusal.value.position is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("0" * 10_000 + "5", 5),
        ("9" * 10_000, None),
        ("", None),
        ("-", None),
        ("1.0", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("٣", None),
    ],
    ids=lambda found: repr(found)[:24],
)
def test_whole_numbers_of_64_bits(text, number):
    assert parse_int64(text) == number


def test_an_unknown_operator_never_holds():
    assert not matches_operator("Like", "a", ["a"])
    assert not matches_operator("Gt", "5", [])
    assert not matches_operator("Gt", "5", ["1", "2"])


def test_selectors_are_frozen_and_hashable():
    selector = ParsedLabelSelector.parse("a=b")
    assert len({selector, ParsedLabelSelector.parse("a in (b)")}) == 1
    assert selector.requirements == (LabelRequirement("a", SelectorOperator.IN, ("b",)),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        selector.requirements = ()  # type: ignore[misc]


def test_a_long_text_is_read_in_one_pass():
    many = ",".join(f"k{i}=v" for i in range(20_000))
    assert len(ParsedLabelSelector.parse(many).requirements) == 20_000
    with pytest.raises(LabelSelectorError, match="column 500007"):
        ParsedLabelSelector.parse("a in (" + "," * 500_000)
